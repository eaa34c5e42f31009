/**
 * The layouts: the one table of their bounds, and of what they need and survive.
 *

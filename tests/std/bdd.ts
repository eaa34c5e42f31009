/**
 * The part of `@std/testing/bdd` for where JSR is not reached. The tests of this project are flat `Deno.test`s; this is for
 * those who bring tests of the other kind.
 *
 * @module
 */

export { describe, it } from "node:test";

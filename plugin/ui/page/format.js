/**
 * Texts of sizes and times, as `kubectl denolith` prints them.
 *
 * @module
 */

/** Formats bytes. @param {number} bytes */
export function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let power = 0;
  while (power < units.length - 1 && bytes >= 1024 ** (power + 1)) power++;
  const value = Math.floor(bytes * 100 / 1024 ** power) / 100;
  return `${Number.isInteger(value) ? value : value.toFixed(value < 10 ? 2 : 1)} ${units[power]}`;
}

/** Formats the time since a moment (RFC 3339): one unit, and below ten of it the next one. @param {string} time */
export function formatAge(time, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  if (Number.isNaN(seconds)) return "";
  const units = /** @type {const} */ ([["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]]);
  const index = units.findIndex(([, size]) => seconds >= size * (size === 1 ? 0 : 2));
  const [unit, size] = units[index] ?? units[3];
  const count = Math.floor(seconds / size);
  const next = units[index + 1];
  const rest = next === undefined || count >= 10 ? 0 : Math.floor(seconds % size / next[1]);
  return `${count}${unit}${rest === 0 ? "" : `${rest}${next?.[0]}`}`;
}

/** Formats a number of things. @param {number} count @param {string} noun */
export function formatCount(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Keys and ids that nobody else makes. `crypto.randomUUID` is missing on pages that came over plain HTTP; this works there too. */

/** 32 hexadecimal digits. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The lines of a body as they come.
 *
 * @module
 */

/** Each line of a stream of text, without its end. What has no end when the stream ends is dropped: it was cut. */
export async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let parts: string[] = [];
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = decoder.decode(value, { stream: true }).split("\n");
      const remainder = lines.pop()!;
      for (const line of lines) {
        parts.push(line);
        const complete = parts.join("");
        parts = [];
        if (complete !== "") yield complete;
      }
      parts.push(remainder);
    }
  } finally {
    // The body may have failed already; then there is nothing to cancel.
    await reader.cancel().catch(() => {});
  }
}

/**
 * The lines of a body as they come.
 *
 * @module
 */

/** Each line of a stream of text, without its end. What has no end when the stream ends is dropped: it was cut. */
export async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let pieces: string[] = [];
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = decoder.decode(value, { stream: true }).split("\n");
      const rest = lines.pop()!;
      for (const line of lines) {
        pieces.push(line);
        const whole = pieces.join("");
        pieces = [];
        if (whole !== "") yield whole;
      }
      pieces.push(rest);
    }
  } finally {
    // The body may have failed already; then there is nothing to cancel.
    await reader.cancel().catch(() => {});
  }
}

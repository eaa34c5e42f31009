/**
 * The lines of a body as they come.
 *
 * @module
 */

/** Reads the lines of a text stream, without line ends. An incomplete last line is dropped: the stream was cut. */
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
    // The body may have failed already, with nothing left to cancel.
    await reader.cancel().catch(() => {});
  }
}

// One answer of the server, while it is streamed and after.
import {request, stream} from "./api.js";

// Fills `answer` {content, reasoning, calls, stats, error} and returns when it is complete. `onChange` is called often.
export async function generate(answer, messages, options, memory, onChange) {
  const begin = performance.now();
  let first = 0, usage = null, speed = 0;
  Object.assign(answer, {content: "", reasoning: "", calls: [], stats: null, progress: null, error: "", stopped: false});
  const put = (event) => {
    if (event.memory) memory.put(event.memory);
    if (event.usage) usage = event.usage, speed = event.timings?.predicted_per_second ?? 0;  // here, texts may arrive in one piece
    if (event.prompt_progress) answer.progress = event.prompt_progress;
    for (const choice of event.choices ?? []) {
      const delta = choice.delta ?? {content: choice.text};
      if (delta.content || delta.reasoning_content || delta.tool_calls) {
        first ||= performance.now();
        answer.progress = null;
      }
      answer.content += delta.content ?? "";
      answer.reasoning += delta.reasoning_content ?? "";
      for (const call of delta.tool_calls ?? []) {
        const known = answer.calls[call.index] ??= {id: "", name: "", arguments: ""};
        known.id ||= call.id ?? "";
        known.name ||= call.function?.name ?? "";
        known.arguments += call.function?.arguments ?? "";
      }
      if (choice.finish_reason) answer.finish = choice.finish_reason;
    }
    onChange();
  };
  try {
    await stream(options.chats ? "/v1/chat/completions" : "/v1/completions",
      request(messages, options), options.signal, put);
  } catch (error) {
    if (error.name === "AbortError") answer.stopped = true;
    else answer.error = error.message, answer.status = error.status;
  }
  answer.progress = null;
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    answer.stats = {tokens: usage.completion_tokens, read: usage.prompt_tokens - cached, reused: cached, evicted: usage.evicted_tokens,
      ttft: first - begin, speed};
  } else if (first) {
    answer.stats = {ttft: first - begin};
  }
  onChange();
}

export function statsText(stats) {
  if (!stats) return "";
  const parts = [];
  if (stats.speed) parts.push(`${stats.speed.toFixed(stats.speed < 100 ? 1 : 0)} tokens/s`);
  parts.push(`first token after ${stats.ttft.toFixed(0)} ms`);
  if (stats.tokens !== undefined) parts.push(`${stats.tokens} written`, `${stats.read} read`, `${stats.reused} reused`, `${stats.evicted} evicted`);
  return parts.join(" · ");
}

// How much of the prompt was read, while it is.
export function progressText({processed, total, cache, time_ms}) {
  const read = processed - cache, speed = time_ms > 0 ? 1000 * read / time_ms : 0, left = speed > 0 ? Math.ceil((total - processed) / speed) : 0;
  return `Reading: ${processed.toLocaleString("en")} of ${total.toLocaleString("en")} tokens` +
    (speed > 0 ? `, ${speed.toFixed(0)}/s, about ${left < 60 ? `${left} s` : `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} min`} left` : "");
}

// What a comparison of two answers says. Where no cache evicted a token, eviction is no reason of a difference.
export function comparisonText([a, b]) {
  if (a.error || b.error || !a.stats || !b.stats) return "";
  const none = !a.stats.evicted && !b.stats.evicted;
  if (a.content === b.content) return none ? "Both answers are the same: neither cache evicted a token. Choose a smaller budget to see what eviction changes." : "Both answers are the same.";
  if (!none) return "Dotted underlines mark words that the other answer has not.";
  return "Neither cache evicted a token, so eviction is not why the answers differ: two tokens were about equally likely, and the methods round differently. " +
    "Dotted underlines mark words that the other answer has not.";
}

// For each word of two texts, whether the other has it too, in the same order.
export function commonWords(a, b) {
  const x = a.split(/(?<=\s)/), y = b.split(/(?<=\s)/);
  const same = [Array(x.length).fill(false), Array(y.length).fill(false)];
  if (x.length * y.length > 1e6) {  // long texts: their common beginning only
    for (let i = 0; i < Math.min(x.length, y.length) && x[i] === y[i]; ++i) same[0][i] = same[1][i] = true;
    return [x, y, same];
  }
  const width = y.length + 1, best = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; --i)
    for (let j = y.length - 1; j >= 0; --j)
      best[i * width + j] = x[i] === y[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  for (let i = 0, j = 0; i < x.length && j < y.length;) {
    if (x[i] === y[j]) same[0][i++] = same[1][j++] = true;
    else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) ++i;
    else ++j;
  }
  return [x, y, same];
}

#include "palimpsest/eval/longbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

using nlohmann::json;

// Calls `take` with each line that is not empty, as an object.
template <typename Take>
void each_line(std::string_view text, const std::string& file, Take take) {
  long long number = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}: line {}", file, number);
    const json record = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) fail("{} is no JSON object: LongBench's files have one on each line", where);
    take(record, where);
  }
  if (number == 0) fail("{}: it is empty", file);
}

std::string text_of(const json& record, const char* field, const std::string& where) {
  const auto found = record.find(field);
  if (found == record.end()) fail("{}: the field \"{}\" is missing", where, field);
  if (!found->is_string()) fail("{}: the field \"{}\" is no text", where, field);
  return found->get<std::string>();
}

std::vector<std::string> texts_of(const json& record, const char* field, const std::string& where, bool needed) {
  const auto found = record.find(field);
  if (found == record.end() || found->is_null()) {
    if (needed) fail("{}: the field \"{}\" is missing", where, field);
    return {};
  }
  std::vector<std::string> out;
  if (!found->is_array()) fail("{}: the field \"{}\" is no list", where, field);
  for (const json& each : *found) {
    if (!each.is_string()) fail("{}: the field \"{}\" holds something else than texts", where, field);
    out.push_back(each.get<std::string>());
  }
  if (needed && out.empty()) fail("{}: the list \"{}\" is empty", where, field);
  return out;
}

json object_of(std::string_view text, const std::string& file) {
  json all = json::parse(text, nullptr, false);
  if (!all.is_object()) fail("{}: not a JSON object of datasets", file);
  return all;
}

void only_whole_characters(std::string& text) {
  while (const auto bad = invalid_utf8(text)) text.erase(*bad, 1);
}

}  // namespace

std::vector<LongBenchRecord> read_longbench(std::string_view jsonl, const std::string& file,
                                            const std::string& dataset) {
  std::vector<LongBenchRecord> records;
  each_line(jsonl, file, [&](const json& from, const std::string& where) {
    LongBenchRecord& made = records.emplace_back();
    made.input = text_of(from, "input", where);
    made.context = text_of(from, "context", where);
    made.answers = texts_of(from, "answers", where, true);
    made.classes = texts_of(from, "all_classes", where, false);
    made.dataset = !dataset.empty() ? dataset : text_of(from, "dataset", where);
    made.length = from.contains("length") && from["length"].is_number() ? from["length"].get<long long>() : 0;
  });
  return records;
}

std::vector<LongBenchRecord> read_predictions(std::string_view jsonl, const std::string& file) {
  std::vector<LongBenchRecord> records;
  each_line(jsonl, file, [&](const json& from, const std::string& where) {
    LongBenchRecord& made = records.emplace_back();
    made.prediction = text_of(from, "pred", where);
    made.answers = texts_of(from, "answers", where, true);
    made.classes = texts_of(from, "all_classes", where, false);
  });
  return records;
}

std::map<std::string, std::string> read_prompts(std::string_view text, const std::string& file) {
  std::map<std::string, std::string> out;
  const json all = object_of(text, file);
  for (const auto& [name, prompt] : all.items()) {
    if (!prompt.is_string()) fail("{}: the prompt of '{}' is no text", file, name);
    out[name] = prompt.get<std::string>();
  }
  return out;
}

std::map<std::string, int> read_lengths(std::string_view text, const std::string& file) {
  std::map<std::string, int> out;
  const json all = object_of(text, file);
  for (const auto& [name, length] : all.items()) {
    if (!length.is_number_integer() || length.get<long long>() < 1 || length.get<long long>() > 1 << 20)
      fail("{}: the output length of '{}' is no number of tokens", file, name);
    out[name] = length.get<int>();
  }
  return out;
}

LongBenchPrompt longbench_prompt(const std::string& format, const LongBenchRecord& record, long long max,
                                 const Vocabulary& vocabulary) {
  LongBenchPrompt out;
  std::string* into = &out.context;
  for (std::size_t at = 0; at < format.size();) {
    const auto open = std::min(format.find('{', at), format.size());
    into->append(format, at, open - at);
    if (open == format.size()) break;
    const auto close = format.find('}', open);
    const std::string placeholder = format.substr(open, close == std::string::npos ? close : close - open + 1);
    if (placeholder == "{context}") {
      out.context += record.context;
      into = &out.question;
    } else if (placeholder == "{input}") {
      *into += record.input;
    } else {
      fail("the prompt of '{}' has a placeholder {} without a field in its records", record.dataset, placeholder);
    }
    at = close + 1;
  }
  const auto tokens = vocabulary.tokenize(out.context + out.question, /*add_bos=*/true, /*special=*/false);
  if (static_cast<long long>(tokens.size()) <= max) return out;
  const auto half = static_cast<std::ptrdiff_t>(max / 2);
  std::vector<TokenId> first(tokens.begin(), tokens.begin() + half), last(tokens.end() - half, tokens.end());
  if (!first.empty() && first.front() == vocabulary.bos()) first.erase(first.begin());
  std::string text = vocabulary.detokenize(first), end;
  for (const TokenId token : last) end += vocabulary.piece(token);
  only_whole_characters(text);
  only_whole_characters(end);
  text += end;
  out.truncated = true;
  out.context.clear();
  if (text.ends_with(out.question))
    out.context = text.substr(0, text.size() - out.question.size());
  else
    out.question = text;  // the question itself is truncated
  if (out.question.empty()) std::swap(out.context, out.question);
  return out;
}

}  // namespace palimpsest

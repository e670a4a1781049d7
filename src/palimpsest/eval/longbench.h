// Reads LongBench's files: records, prompts, output lengths (Bai et al., arXiv 2308.14508).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct LongBenchRecord {
  std::string input, context, dataset;
  std::vector<std::string> answers, classes;
  long long length = 0;
  std::string prediction;  // only in files of predictions
};

// These throw Error that names the file, the line and the field. A record has input, context, answers and dataset
// (`dataset` replaces the last for all records); a prediction has pred and answers.
std::vector<LongBenchRecord> read_longbench(std::string_view jsonl, const std::string& file,
                                            const std::string& dataset);
std::vector<LongBenchRecord> read_predictions(std::string_view jsonl, const std::string& file);
// dataset2prompt.json and dataset2maxlen.json.
std::map<std::string, std::string> read_prompts(std::string_view json, const std::string& file);
std::map<std::string, int> read_lengths(std::string_view json, const std::string& file);

struct LongBenchPrompt {
  std::string context, question;  // question: everything after the record's context
  bool truncated = false;
};
// Fills in the prompt's placeholders. A prompt of more than `max` tokens is truncated in the middle: the first and the
// last max / 2 tokens are kept. Throws Error for a placeholder that is not a field of the record.
LongBenchPrompt longbench_prompt(const std::string& format, const LongBenchRecord& record, long long max,
                                 const Vocabulary& vocabulary);

}  // namespace palimpsest

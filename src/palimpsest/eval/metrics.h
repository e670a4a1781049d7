// LongBench's metrics (Bai et al., arXiv 2308.14508, and its published code), from 0 to 1. Follows Python where the
// published code depends on it: white space, digits, difflib's matching blocks with popular characters, `round` to
// even. Compared with that code on 1,000 pairs: docs/evaluation.md.
//
// Unsupported: F1 and ROUGE of Chinese, which need a dictionary (jieba) to split words. Difference: where a sentence is
// so long that the published ROUGE-L exceeds Python's recursion limit and scores 0, this returns the true score.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// F1 of the words as multisets; ignores case, punctuation and articles.
double qa_f1(std::string_view prediction, std::string_view truth);
// F score of the longest common subsequences, sentence by sentence (as in `rouge` 1.0.1: distinct words, 1e-8 in the
// denominator).
double rouge_l(std::string_view prediction, std::string_view truth);
// 1 / number of class names in the prediction if the right one is among them, else 0.
double classification(std::string_view prediction, std::string_view truth, std::span<const std::string> classes);
// Fraction of the prediction's numbers that equal the truth's number after `word`: "Paragraph 7", "段落7".
double retrieval(std::string_view prediction, std::string_view truth, std::string_view word);
// The same with a truth that is only a number.
double count_share(std::string_view prediction, std::string_view truth);
// fuzz.ratio of the prediction's first line that is neither a comment nor a code fence.
double code_similarity(std::string_view prediction, std::string_view truth);

struct LongBenchTask {
  std::string_view name;
  enum class Metric { kF1, kRougeL, kClassification, kRetrieval, kRetrievalZh, kCount, kCode, kWordsCut } metric;
  bool first_line = false;  // only the answer's first line counts (few-shot tasks)
  bool chat = true;         // a chat template is recommended
};
const LongBenchTask* longbench_task(std::string_view name);  // nullptr: unknown
std::string longbench_tasks();                               // "2wikimqa, dureader, ..."

// The max over the truths. Throws Error for a task that needs word segmentation (kWordsCut).
double longbench_score(const LongBenchTask& task, std::string_view prediction, std::span<const std::string> truths,
                       std::span<const std::string> classes);

}  // namespace palimpsest

// How LongBench scores answers (Bai et al., arXiv 2308.14508, and its published metrics), from 0 to 1. Where the
// published code leans on Python, this does what Python does: its blanks, its digits, difflib's matching blocks with
// their popular characters, `round` to even. It is held against that code on 1,000 pairs: docs/evaluation.md.
//
// Not here: F1 and ROUGE of Chinese, which cut words by a dictionary (jieba). And where a sentence is so long that the
// published ROUGE-L runs into Python's recursion limit and counts 0, this counts what it is worth.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// Words in common, as counted sets; case, punctuation and articles aside.
double qa_f1(std::string_view prediction, std::string_view truth);
// F of the longest common subsequences, sentence by sentence (as `rouge` 1.0.1 has it: distinct words, 1e-8 in the
// denominator).
double rouge_l(std::string_view prediction, std::string_view truth);
// 1 / the number of class names that the prediction holds, if the right one is among them.
double classification(std::string_view prediction, std::string_view truth, std::span<const std::string> classes);
// The share of the prediction's numbers that are the truth's: of "Paragraph 7", of "段落7".
double retrieval(std::string_view prediction, std::string_view truth, std::string_view word);
// The same of a bare number.
double count_share(std::string_view prediction, std::string_view truth);
// fuzz.ratio of the prediction's first line that is no comment and no fence.
double code_similarity(std::string_view prediction, std::string_view truth);

struct LongBenchTask {
  std::string_view name;
  enum class Metric { kF1, kRougeL, kClassification, kRetrieval, kRetrievalZh, kCount, kCode, kWordsCut } metric;
  bool first_line = false;  // only the answer's first line counts (few-shot tasks)
  bool chat = true;         // better put into a chat template
};
const LongBenchTask* longbench_task(std::string_view name);  // nullptr: none is called so
std::string longbench_tasks();                               // "2wikimqa, dureader, ..."

// The best over the truths. Throws Error for a task whose words have to be cut.
double longbench_score(const LongBenchTask& task, std::string_view prediction, std::span<const std::string> truths,
                       std::span<const std::string> classes);

}  // namespace palimpsest

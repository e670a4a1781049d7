#include "palimpsest/fit/method_files.h"

#include <array>
#include <filesystem>

#include "palimpsest/policy/query_centres.h"
#include "palimpsest/policy/scorer_formats.h"

namespace palimpsest {

std::vector<std::string> files_of(const MethodPlan& plan, const std::string& model_path) {
  namespace fs = std::filesystem;
  const Method& method = plan.method();
  std::vector<std::string> named;
  if (method.split == Split::kFile)
    named.push_back(method.split.file());
  else if (method.split.is_beside_model())
    named.push_back(plan.target().file_of(method.split));
  else if (method.recall > 0 && method.recall_heads < 1)
    named.push_back(plan.target().profile_file);
  if (plan.signals().model && method.scorer != "auto") named.push_back(method.scorer);
  if (plan.signals().model && method.scorer == "auto" && !model_path.empty())
    for (const ScorerFormat& format :
         {kKvZapFormat, kLearnedFormat, kTemporalFormat, QueryCentres(PolicyModel{}).format()})
      if (format.policy == method.policy)
        named.push_back(fs::path(model_path).replace_extension(format.extension).string());
  std::vector<std::string> out;
  std::error_code ignored;
  for (const std::string& each : named)
    if (fs::is_regular_file(each, ignored)) out.push_back(each);
  return out;
}

}  // namespace palimpsest

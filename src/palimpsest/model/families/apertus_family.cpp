#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// One number for all layers, or one per layer.
std::vector<double> xielu_numbers(const GgufFile& file, const std::string& key, int layers) {
  if (!file.has(key)) fail("{}: key {} is missing; convert the model again", file.path(), key);
  if (!file.is_array(key)) return std::vector<double>(static_cast<std::size_t>(layers), *file.number(key));
  std::vector<double> out = *file.numbers(key);
  if (out.size() != static_cast<std::size_t>(layers))
    fail("{}: key {} has {} values for {} layers: damaged", file.path(), key, out.size(), layers);
  return out;
}

}  // namespace

const Family kApertusFamily = {
    .architecture = "apertus",
    .models = "Apertus",
    .qk_norm = QkNorm::kHead,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kXielu,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.xielu.assign(static_cast<std::size_t>(h.layers), {});
          const char* const names[] = {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta", "xielu.eps"};
          for (std::size_t n = 0; n < std::size(names); ++n) {
            const auto numbers = xielu_numbers(keys.file(), names[n], h.layers);
            for (std::size_t i = 0; i < numbers.size(); ++i) h.xielu[i][n] = static_cast<float>(numbers[i]);
          }
        },
    .tiny = {.tied = false,
             .keys = {{"xielu.alpha_n", ExtraKey::Type::kNumber, 0.8, true},
                      {"xielu.alpha_p", ExtraKey::Type::kNumber, 0.7, true},
                      {"xielu.beta", ExtraKey::Type::kNumber, 0.5, true},
                      {"xielu.eps", ExtraKey::Type::kNumber, -1e-6, true}}},
};

}  // namespace palimpsest

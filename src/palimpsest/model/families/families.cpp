#include "palimpsest/model/families/families.h"

#include <algorithm>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/core/nearest_name.h"
#include "palimpsest/model/encoder_file.h"

namespace palimpsest {

namespace {

constexpr std::string_view
    kOwnSelection =
        "the model selects the tokens of its attention by an index of its own, which eviction would have to keep",
    kNoCache = "it has no attention, so no KV cache and nothing to evict",
    kOtherState = "its recurrent layers (Mamba-1, RWKV, Kimi's delta rule) are not supported",
    kDiffusion = "it is a diffusion model: it writes all tokens of a text at once, without a KV cache",
    kEncoder =
        "it is an encoder, which writes no text; `palimpsest serve` answers /v1/embeddings and /v1/rerank with it",
    kDraft = "it is a draft of another model, which reads that model's hidden states";
// Of libllama 0.7.0; nothing but a description, and what that may need, is missing.
constexpr std::string_view kNoDescription = "libllama knows it, but no description of it has been written here";
constexpr std::string_view kSpeech = "it writes speech, not text";
constexpr RefusedArchitecture kRefused[] = {
    {"deepseek32", kOwnSelection},
    {"deepseek4", kOwnSelection},
    {"glm-dsa", kOwnSelection},
    {"minimax-m3", kOwnSelection},
    {"mamba", kNoCache},
    {"mamba2", kNoCache},
    {"rwkv6", kNoCache},
    {"rwkv6qwen2", kNoCache},
    {"rwkv7", kNoCache},
    {"arwkv7", kNoCache},
    {"jamba", kOtherState},
    {"plamo2", kOtherState},
    {"kimi-linear", kOtherState},
    {"minimax-01", kOtherState},
    {"dream", kDiffusion},
    {"llada", kDiffusion},
    {"llada-moe", kDiffusion},
    {"rnd1", kDiffusion},
    {"t5", "it is an encoder and a decoder, which attends to the encoder's text"},
    {"wavtokenizer-dec", "it writes audio, not text"},
    {"eagle3", kDraft},
    {"dflash", kDraft},
    {"gemma4-assistant", kDraft},
    {"laguna", "its attention is gated by a softplus, which is not supported"},
    {"talkie", "it adds the embeddings after each layer, which is not supported"},
    {"nanbeige", "it runs all layers several times, which is not supported"},
    {"qwen3tts", kSpeech},
    {"pockettts", kSpeech},
    {"bailingmoe3", kNoDescription},
    {"clef", kNoDescription},
    {"dots3note", kNoDescription},
    {"gemma-embedding2", kNoDescription},
    {"glm5-next", kNoDescription},
    {"granite_swa", kNoDescription},
    {"graniteswitch", kNoDescription},
    {"hrm_text", kNoDescription},
    {"hy_v3", kNoDescription},
    {"hy_v4", kNoDescription},
    {"k2-horizon", kNoDescription},
    {"kimi-k3", kNoDescription},
    {"maion-coder", kNoDescription},
    {"maple", kNoDescription},
    {"muse-glimmer", kNoDescription},
    {"qwen4exp", kNoDescription},
    {"spark2_5", kNoDescription},
    {"vllm-decision2", kNoDescription},
};

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Family* family : kFamilies) out.emplace_back(family->architecture);
  return out;
}

// The nearest name, or the one with the longest common beginning: "qwen4" is near "qwen3".
std::string nearest(std::string_view architecture) {
  const std::vector<std::string> known = names();
  if (const auto near = nearest_name(architecture, known)) return *near;
  std::string best;
  std::size_t longest = 2;
  for (const std::string& name : known) {
    const auto end = std::ranges::mismatch(name, architecture).in1;
    if (const auto common = static_cast<std::size_t>(end - name.begin()); common > longest)
      longest = common, best = name;
  }
  return best;
}

}  // namespace

const Family& find_family(std::string_view architecture) {
  for (const Family* family : kFamilies)
    if (family->architecture == architecture) return *family;
  for (const RefusedArchitecture& refused : kRefused)
    if (refused.architecture == architecture)
      fail("architecture \"{}\" is not supported: {}", architecture, refused.why);
  if (std::ranges::find(encoder_architectures(), architecture) != encoder_architectures().end())
    fail("architecture \"{}\" is not supported here: {}", architecture, kEncoder);
  const std::string near = nearest(architecture);
  fail("architecture \"{}\" is not supported{}; `palimpsest info --families` lists those that are",
       printable(architecture), near.empty() ? "" : fmt::format("; the nearest one that is: {}", near));
}

std::span<const Family* const> families() {
  return kFamilies;
}

std::span<const RefusedArchitecture> refused_architectures() {
  return kRefused;
}

}  // namespace palimpsest

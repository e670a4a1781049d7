// Every family, one file each. A new one needs its file and two lines here.
#pragma once

#include <span>
#include <string_view>

#include "palimpsest/model/family.h"

namespace palimpsest {

extern const Family kAfmoeFamily;
extern const Family kApertusFamily;
extern const Family kArceeFamily;
extern const Family kArcticFamily;
extern const Family kBaichuanFamily;
extern const Family kBailingMoeFamily;
extern const Family kBailingMoe2Family;
extern const Family kBitNetFamily;
extern const Family kBloomFamily;
extern const Family kChameleonFamily;
extern const Family kChatGlmFamily;
extern const Family kCodeShellFamily;
extern const Family kCogVlmFamily;
extern const Family kCohere2Family;
extern const Family kCohere2MoeFamily;
extern const Family kCommandRFamily;
extern const Family kDbrxFamily;
extern const Family kDeciFamily;
extern const Family kDeepseekFamily;
extern const Family kDeepseek2Family;
extern const Family kDeepseek2OcrFamily;
extern const Family kDots1Family;
extern const Family kErnie45Family;
extern const Family kErnie45MoeFamily;
extern const Family kExaoneFamily;
extern const Family kExaone4Family;
extern const Family kExaoneMoeFamily;
extern const Family kFalconFamily;
extern const Family kFalconH1Family;
extern const Family kGemmaFamily;
extern const Family kGemma2Family;
extern const Family kGemma3Family;
extern const Family kGemma3nFamily;
extern const Family kGemma4Family;
extern const Family kGlm4Family;
extern const Family kGlm4MoeFamily;
extern const Family kGpt2Family;
extern const Family kGptJFamily;
extern const Family kGptNeoxFamily;
extern const Family kGptOssFamily;
extern const Family kGraniteFamily;
extern const Family kGraniteHybridFamily;
extern const Family kGraniteMoeFamily;
extern const Family kGrokFamily;
extern const Family kGroveMoeFamily;
extern const Family kHunyuanDenseFamily;
extern const Family kHunyuanMoeFamily;
extern const Family kHunyuanVlFamily;
extern const Family kInternLm2Family;
extern const Family kJaisFamily;
extern const Family kJais2Family;
extern const Family kLfm2Family;
extern const Family kLfm2MoeFamily;
extern const Family kLlamaFamily;
extern const Family kLlama4Family;
extern const Family kMaincoderFamily;
extern const Family kMellumFamily;
extern const Family kMimo2Family;
extern const Family kMiniCpmFamily;
extern const Family kMiniCpm3Family;
extern const Family kMinimaxM2Family;
extern const Family kMistral3Family;
extern const Family kMistral4Family;
extern const Family kMptFamily;
extern const Family kNemotronFamily;
extern const Family kNemotronHFamily;
extern const Family kNemotronHMoeFamily;
extern const Family kOlmoFamily;
extern const Family kOlmo2Family;
extern const Family kOlmoeFamily;
extern const Family kOpenElmFamily;
extern const Family kOptFamily;
extern const Family kOrionFamily;
extern const Family kPaddleOcrFamily;
extern const Family kPanguEmbeddedFamily;
extern const Family kPhi2Family;
extern const Family kPhi3Family;
extern const Family kPhiMoeFamily;
extern const Family kPlamo3Family;
extern const Family kPlamoFamily;
extern const Family kPlmFamily;
extern const Family kQwen2Family;
extern const Family kQwen2MoeFamily;
extern const Family kQwen2VlFamily;
extern const Family kQwen3Family;
extern const Family kQwen35Family;
extern const Family kQwen35MoeFamily;
extern const Family kQwen3MoeFamily;
extern const Family kQwen3NextFamily;
extern const Family kQwen3VlFamily;
extern const Family kQwen3VlMoeFamily;
extern const Family kRefactFamily;
extern const Family kSeedOssFamily;
extern const Family kSmallThinkerFamily;
extern const Family kSmolLm3Family;
extern const Family kStableLmFamily;
extern const Family kStarcoderFamily;
extern const Family kStarcoder2Family;
extern const Family kStep35Family;
extern const Family kXverseFamily;

inline constexpr const Family* kFamilies[] = {
    &kAfmoeFamily,        &kApertusFamily,       &kArceeFamily,      &kArcticFamily,       &kBaichuanFamily,
    &kBailingMoeFamily,   &kBailingMoe2Family,   &kBitNetFamily,     &kBloomFamily,        &kChameleonFamily,
    &kChatGlmFamily,      &kCodeShellFamily,     &kCogVlmFamily,     &kCohere2Family,      &kCohere2MoeFamily,
    &kCommandRFamily,     &kDbrxFamily,          &kDeciFamily,       &kDeepseekFamily,     &kDeepseek2Family,
    &kDeepseek2OcrFamily, &kDots1Family,         &kErnie45Family,    &kErnie45MoeFamily,   &kExaoneFamily,
    &kExaone4Family,      &kExaoneMoeFamily,     &kFalconFamily,     &kFalconH1Family,     &kGemmaFamily,
    &kGemma2Family,       &kGemma3Family,        &kGemma3nFamily,    &kGemma4Family,       &kGlm4Family,
    &kGlm4MoeFamily,      &kGpt2Family,          &kGptJFamily,       &kGptNeoxFamily,      &kGptOssFamily,
    &kGraniteFamily,      &kGraniteHybridFamily, &kGraniteMoeFamily, &kGrokFamily,         &kGroveMoeFamily,
    &kHunyuanDenseFamily, &kHunyuanMoeFamily,    &kHunyuanVlFamily,  &kInternLm2Family,    &kJaisFamily,
    &kJais2Family,        &kLfm2Family,          &kLfm2MoeFamily,    &kLlamaFamily,        &kLlama4Family,
    &kMaincoderFamily,    &kMellumFamily,        &kMimo2Family,      &kMiniCpmFamily,      &kMiniCpm3Family,
    &kMinimaxM2Family,    &kMistral3Family,      &kMistral4Family,   &kMptFamily,          &kNemotronFamily,
    &kNemotronHFamily,    &kNemotronHMoeFamily,  &kOlmoFamily,       &kOlmo2Family,        &kOlmoeFamily,
    &kOpenElmFamily,      &kOptFamily,           &kOrionFamily,      &kPaddleOcrFamily,    &kPanguEmbeddedFamily,
    &kPhi2Family,         &kPhi3Family,          &kPhiMoeFamily,     &kPlamo3Family,       &kPlamoFamily,
    &kPlmFamily,          &kQwen2Family,         &kQwen2MoeFamily,   &kQwen2VlFamily,      &kQwen3Family,
    &kQwen35Family,       &kQwen35MoeFamily,     &kQwen3MoeFamily,   &kQwen3NextFamily,    &kQwen3VlFamily,
    &kQwen3VlMoeFamily,   &kRefactFamily,        &kSeedOssFamily,    &kSmallThinkerFamily, &kSmolLm3Family,
    &kStableLmFamily,     &kStarcoderFamily,     &kStarcoder2Family, &kStep35Family,       &kXverseFamily,
};

struct AltUp;
AltUp gemma3n_alt_up();                       // the published sizes
inline constexpr int kGemma3nPerLayer = 256;  // likewise: Hyperparameters::per_layer

// Throws Error that says why the architecture is not supported, or names the nearest one that is.
const Family& find_family(std::string_view architecture);
std::span<const Family* const> families();  // by name

// Architectures of libllama that are not supported, and why.
struct RefusedArchitecture {
  std::string_view architecture, why;
};
std::span<const RefusedArchitecture> refused_architectures();

}  // namespace palimpsest

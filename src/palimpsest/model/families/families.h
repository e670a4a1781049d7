// Every family, one file each. A new one needs its file and two lines here.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "palimpsest/model/family.h"

namespace palimpsest {

extern const Family kArceeFamily;
extern const Family kBailingMoe2Family;
extern const Family kBloomFamily;
extern const Family kCohere2Family;
extern const Family kCommandRFamily;
extern const Family kDeciFamily;
extern const Family kDeepseek2Family;
extern const Family kDots1Family;
extern const Family kErnie45Family;
extern const Family kErnie45MoeFamily;
extern const Family kExaone4Family;
extern const Family kFalconH1Family;
extern const Family kGemma2Family;
extern const Family kGemma3Family;
extern const Family kGemma3nFamily;
extern const Family kGemmaFamily;
extern const Family kGlm4Family;
extern const Family kGlm4MoeFamily;
extern const Family kGpt2Family;
extern const Family kGptJFamily;
extern const Family kGptNeoxFamily;
extern const Family kGptOssFamily;
extern const Family kGraniteFamily;
extern const Family kGraniteHybridFamily;
extern const Family kGraniteMoeFamily;
extern const Family kHunyuanDenseFamily;
extern const Family kHunyuanMoeFamily;
extern const Family kLfm2Family;
extern const Family kLfm2MoeFamily;
extern const Family kLlama4Family;
extern const Family kLlamaFamily;
extern const Family kMinimaxM2Family;
extern const Family kMptFamily;
extern const Family kNemotronFamily;
extern const Family kNemotronHFamily;
extern const Family kNemotronHMoeFamily;
extern const Family kOlmo2Family;
extern const Family kOpenElmFamily;
extern const Family kOptFamily;
extern const Family kPhi3Family;
extern const Family kQwen2Family;
extern const Family kQwen35Family;
extern const Family kQwen35MoeFamily;
extern const Family kQwen3Family;
extern const Family kQwen3MoeFamily;
extern const Family kQwen3NextFamily;
extern const Family kSeedOssFamily;
extern const Family kSmolLm3Family;
extern const Family kStableLmFamily;

inline constexpr const Family* kFamilies[] = {
    &kArceeFamily,        &kBailingMoe2Family, &kBloomFamily,     &kCohere2Family,       &kCommandRFamily,
    &kDeciFamily,         &kDeepseek2Family,   &kDots1Family,     &kErnie45Family,       &kErnie45MoeFamily,
    &kExaone4Family,      &kFalconH1Family,    &kGemma2Family,    &kGemma3Family,        &kGemma3nFamily,
    &kGemmaFamily,        &kGlm4Family,        &kGlm4MoeFamily,   &kGpt2Family,          &kGptJFamily,
    &kGptNeoxFamily,      &kGptOssFamily,      &kGraniteFamily,   &kGraniteHybridFamily, &kGraniteMoeFamily,
    &kHunyuanDenseFamily, &kHunyuanMoeFamily,  &kLfm2Family,      &kLfm2MoeFamily,       &kLlama4Family,
    &kLlamaFamily,        &kMinimaxM2Family,   &kMptFamily,       &kNemotronFamily,      &kNemotronHFamily,
    &kNemotronHMoeFamily, &kOlmo2Family,       &kOpenElmFamily,   &kOptFamily,           &kPhi3Family,
    &kQwen2Family,        &kQwen35Family,      &kQwen35MoeFamily, &kQwen3Family,         &kQwen3MoeFamily,
    &kQwen3NextFamily,    &kSeedOssFamily,     &kSmolLm3Family,   &kStableLmFamily,
};

struct AltUp;
AltUp gemma3n_alt_up();  // the published sizes

// Throws Error that names the architecture and lists the supported ones.
const Family& find_family(std::string_view architecture);
std::string supported_architectures();      // "llama, qwen2, qwen3"
std::span<const Family* const> families();  // by name

}  // namespace palimpsest

// Every family, one file each. A new one needs its file and two lines here.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "palimpsest/model/family.h"

namespace palimpsest {

extern const Family kBloomFamily;
extern const Family kCohere2Family;
extern const Family kCommandRFamily;
extern const Family kDeciFamily;
extern const Family kDeepseek2Family;
extern const Family kErnie45Family;
extern const Family kFalconH1Family;
extern const Family kGemmaFamily;
extern const Family kGemma2Family;
extern const Family kGemma3Family;
extern const Family kGlm4Family;
extern const Family kGpt2Family;
extern const Family kGptJFamily;
extern const Family kGptNeoxFamily;
extern const Family kGptOssFamily;
extern const Family kGraniteFamily;
extern const Family kGraniteHybridFamily;
extern const Family kGraniteMoeFamily;
extern const Family kLfm2Family;
extern const Family kLfm2MoeFamily;
extern const Family kLlamaFamily;
extern const Family kMptFamily;
extern const Family kOlmo2Family;
extern const Family kOpenElmFamily;
extern const Family kOptFamily;
extern const Family kPhi3Family;
extern const Family kQwen2Family;
extern const Family kQwen3Family;
extern const Family kQwen3MoeFamily;
extern const Family kSmolLm3Family;
extern const Family kStableLmFamily;

inline constexpr const Family* kFamilies[] = {
    &kBloomFamily,    &kCohere2Family, &kCommandRFamily, &kDeciFamily,    &kDeepseek2Family,     &kErnie45Family,
    &kFalconH1Family, &kGemmaFamily,   &kGemma2Family,   &kGemma3Family,  &kGlm4Family,          &kGpt2Family,
    &kGptJFamily,     &kGptNeoxFamily, &kGptOssFamily,   &kGraniteFamily, &kGraniteHybridFamily, &kGraniteMoeFamily,
    &kLfm2Family,     &kLfm2MoeFamily, &kLlamaFamily,    &kMptFamily,     &kOlmo2Family,         &kOpenElmFamily,
    &kOptFamily,      &kPhi3Family,    &kQwen2Family,    &kQwen3Family,   &kQwen3MoeFamily,      &kSmolLm3Family,
    &kStableLmFamily,
};

// Throws Error that names the architecture and lists the supported ones.
const Family& find_family(std::string_view architecture);
std::string supported_architectures();      // "llama, qwen2, qwen3"
std::span<const Family* const> families();  // by name

}  // namespace palimpsest

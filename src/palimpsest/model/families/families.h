// Every family, one file each.
#pragma once

#include "palimpsest/model/family.h"

namespace palimpsest {

extern const Family kLlamaFamily;
extern const Family kQwen2Family;
extern const Family kQwen3Family;

inline constexpr const Family* kFamilies[] = {&kLlamaFamily, &kQwen2Family, &kQwen3Family};

}  // namespace palimpsest

#include "palimpsest/model/families/families.h"

namespace palimpsest {

const Family kErnie45Family = {
    .architecture = "ernie4_5",
    .models = "ERNIE 4.5, dense",
    .rope = RopeKind::kPairs,
};

}  // namespace palimpsest

// palimpsest info --families: supported architectures, their models and special features.
#pragma once

namespace palimpsest::cli {

int list_families(bool json);  // returns the exit code

}  // namespace palimpsest::cli

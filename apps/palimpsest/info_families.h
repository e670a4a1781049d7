// palimpsest info --families: the architectures that can be run, who is of them, what is odd about each.
#pragma once

namespace palimpsest::cli {

int list_families(bool json);  // an exit code

}  // namespace palimpsest::cli

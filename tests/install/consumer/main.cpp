#include <cstdio>

#include "palimpsest/core/version.h"

int main() {
  std::printf("palimpsest %s\n", palimpsest::version());
}

#include <cstdio>

#include "palimpsest/core/version.h"
#include "palimpsest/text/chat_template.h"

int main() {
  // llama.cpp's chat library is linked, too.
  if (palimpsest::chat_template_names().empty()) return 1;
  std::printf("palimpsest %s\n", palimpsest::version());
}

#include <cstdio>

#include "palimpsest/core/version.h"
#include "palimpsest/text/chat_template.h"

int main() {
  // llama.cpp's chat library is linked, too.
  if (palimpsest::schema_to_grammar(R"({"type":"null"})").find("root") == std::string::npos) return 1;
  std::printf("palimpsest %s\n", palimpsest::version());
}

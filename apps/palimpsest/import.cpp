// palimpsest import: calibrations that others have published, as files beside a model.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/core/regular_file.h"
#include "palimpsest/fit/import_calibration.h"
#include "palimpsest/options.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kImportFooter =
    R"(Writes a calibration that others have published as the file beside the model that a method reads. Nothing
of the file is executed: a .pt is read as plain values. It is checked by shape only: that it was measured on
this model's weights, you must know. A file that is there already is not replaced.

  statistics of TriAttention (.pt of torch.save)    model.centres   --method triattention
  head budgets of Attention Matching (.json)        model.profile   split=profile, --method auto
  a pattern of DuoAttention (.tsv)                  model.duo       --method duo

Examples:
  palimpsest import qwen3_8b.pt -m Qwen3-8B-Q4_K_M.gguf
  palimpsest run -m Qwen3-8B-Q4_K_M.gguf --method triattention --budget 2048
  palimpsest import optimized_agnostic.json -m llama.gguf --folder calibrations)";

struct ImportFlags {
  ModelFlags model;
  std::string file, folder;
  bool json = false;
};

constexpr std::size_t kMaxCalibration = std::size_t{4} << 30;

std::vector<std::byte> bytes_of(const std::string& path) {
  const RegularFile file(path, "a calibration");
  if (file.size() > kMaxCalibration)
    fail("{}: has {} GiB, and no calibration has more than {}", path, file.size() >> 30, kMaxCalibration >> 30);
  std::vector<std::byte> bytes(file.size());
  file.read(0, bytes);
  return bytes;
}

std::string use_of(const Imported& imported, const std::string& path, bool beside) {
  if (imported.extension == ".centres") return beside ? "--method triattention" : "triattention:scorer=" + path;
  if (imported.extension == ".duo") return beside ? "--method duo" : "duo:split=" + path;
  return beside ? "split=profile, method auto" : "split=" + path;
}

int run_import(const ImportFlags& flags) {
  namespace fs = std::filesystem;
  if (!flags.folder.empty() && !fs::is_directory(flags.folder))
    fail("--folder {}: there is no such folder: make it first", flags.folder);
  const std::vector<std::byte> bytes = bytes_of(flags.file);
  const auto model = load_model(flags.model);
  if (model->path().empty()) fail("a model of random weights has no file to lie beside: give -m MODEL");
  const Imported imported = import_calibration(bytes, flags.file, *model);
  const fs::path beside = fs::path(model->path()).replace_extension(imported.extension);
  const std::string path =
      flags.folder.empty() ? beside.string() : (fs::path(flags.folder) / beside.filename()).string();
  if (fs::exists(path)) fail("{} is there already: move it away, or give another folder with --folder", path);
  write_new_file(path, imported.content);
  const std::string use = use_of(imported, path, flags.folder.empty());
  if (flags.json) {
    nlohmann::ordered_json out = {{"file", path}, {"what", imported.what}, {"of", imported.of}, {"use", use}};
    fmt::print("{}\n", out.dump(2));
    return kOk;
  }
  fmt::print("{}: {}{}, checked by shape alone ({})\n", path, imported.what,
             imported.of.empty() ? "" : fmt::format(" of {}", imported.of), use);
  return kOk;
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("import", "Take over published calibrations as a model's files");
  command->footer(kImportFooter);
  const auto flags = std::make_shared<ImportFlags>();
  command->add_option("FILE", flags->file, "the calibration")->type_name("FILE")->required();
  command->add_option("--folder", flags->folder, "folder of the new file")
      ->type_name("DIR")
      ->default_str("the model's");
  add_text_model_flags(*command, flags->model);
  add_json_flag(*command, flags->json);
  command->callback([&action, flags] { action = [flags] { return run_import(*flags); }; });
}

}  // namespace palimpsest::cli

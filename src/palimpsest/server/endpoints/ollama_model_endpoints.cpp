#include <fmt/ranges.h>
#include <ggml.h>
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <map>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/core/sha256.h"
#include "palimpsest/core/version.h"
#include "palimpsest/server/apis/ollama_request.h"
#include "palimpsest/server/endpoints/endpoints.h"
#include "palimpsest/server/reply/iso_time.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/sampling_fields.h"
#include "palimpsest/text/infill.h"

namespace palimpsest {
namespace {

constexpr const char* kNever = "9999-12-31T23:59:59Z";  // the model stays in memory

// Hashes the file's header and its size: all of a large file would take a minute to read.
std::string digest_of(const GgufFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  std::size_t header = bytes.size();
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.part == 0) header = std::min(header, static_cast<std::size_t>(tensor.data - bytes.data()));
  std::string text(reinterpret_cast<const char*>(bytes.data()), header);
  return sha256_hex(text + std::to_string(bytes.size()));
}

std::string short_count(double count) {
  return count >= 1e9 ? fmt::format("{:.1f}B", count / 1e9) : fmt::format("{:.2f}M", count / 1e6);
}

struct ModelFile {
  std::string digest, modified;
  std::string type = {};  // that most bytes of the weights have
  std::uintmax_t size = 0;
  double parameters = 0;
  Json details = {}, info = Json::object();
};

void read_weights(const GgufFile& file, ModelFile& out) {
  std::map<ggml_type, std::size_t> bytes;
  for (const GgufTensor& tensor : file.tensors()) {
    double count = 1;
    for (const std::int64_t n : tensor.ne) count *= static_cast<double>(n);
    out.parameters += count;
    bytes[tensor.type] += tensor.bytes;
    out.size += tensor.bytes;
  }
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& each) { return each.second; });
  if (most != bytes.end()) out.type = upper_case(ggml_type_name(most->first));
}

// Numbers, booleans and short texts of the metadata.
void read_metadata(const GgufFile& file, ModelFile& out) {
  constexpr std::size_t kMaxText = 1024;
  for (const std::string_view key : file.keys()) {
    if (key.starts_with("tokenizer.chat_template") || file.is_array(key)) continue;
    const std::string name = printable(key);
    const auto of = [&](auto read) {
      try {
        return read(key);
      } catch (const std::exception&) {  // of another type
        return decltype(read(key))();
      }
    };
    if (const auto text = of([&](auto k) { return file.text(k); }))
      out.info[name] = text->substr(0, kMaxText);
    else if (const auto yes = of([&](auto k) { return file.boolean(k); }))
      out.info[name] = *yes;
    else if (const auto whole = of([&](auto k) { return file.integer(k); }))
      out.info[name] = *whole;
    else if (const auto number = of([&](auto k) { return file.number(k); }))
      out.info[name] = *number;
  }
  out.info["general.parameter_count"] = static_cast<long long>(out.parameters);
}

ModelFile model_file(const std::string& path, const std::string& name) {
  ModelFile out{.digest = sha256_hex(name), .modified = iso_time()};
  std::string architecture = "unknown";
  if (!path.empty()) {
    const GgufFile file = GgufFile::open(path);
    if (const auto read = file.text("general.architecture")) architecture = printable(*read);
    out.digest = digest_of(file);
    read_weights(file, out);
    read_metadata(file, out);
    std::error_code error;
    const auto written = std::chrono::file_clock::to_sys(std::filesystem::last_write_time(path, error));
    if (!error)
      out.modified = iso_time(std::chrono::system_clock::to_time_t(
          std::chrono::time_point_cast<std::chrono::system_clock::duration>(written)));
  }
  out.details = {{"parent_model", ""},
                 {"format", "gguf"},
                 {"family", architecture},
                 {"families", Json::array({architecture})},
                 {"parameter_size", short_count(out.parameters)},
                 {"quantization_level", out.type}};
  return out;
}

Json entry(const std::string& model, const ModelFile& file) {
  const std::string name = model + ":latest";
  return {{"name", name}, {"model", name}, {"size", file.size}, {"digest", file.digest}, {"details", file.details}};
}

Json capabilities_of(const ServedModel& model) {
  if (model.encodes) return Json::array({"embedding"});
  Json out = Json::array({"completion"});
  if (model.chat_template != nullptr && model.chat_template->tools() != ChatTemplate::Tools::kNone)
    out.push_back("tools");
  if (missing_infill_tokens(*model.vocabulary).empty()) out.push_back("insert");
  if (model.pooling != Pooling::kNone) out.push_back("embedding");
  return out;
}

// "temperature 0.8", a line each; Continue refuses an empty one.
std::string parameters_of(const ServedModel& model) {
  std::vector<std::string> lines;
  const Json sampling = sampling_json(model.sampling);
  for (const char* name : {"temperature", "top_k", "top_p", "min_p", "repeat_penalty"})
    lines.push_back(fmt::format("{:<31}{}", name, sampling[name].dump()));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace

void ollama_tags(const HttpCall& call) {
  Json list = Json::array();
  for (const ModelHost::Shown& shown : call.host.show()) {
    try {
      const ModelFile file = model_file(shown.model.path, shown.model.name);
      Json one = entry(shown.model.name, file);
      one["modified_at"] = file.modified;
      list.push_back(std::move(one));
    } catch (const Error&) {  // damaged, or removed now: it cannot be used
    }
  }
  call.reply({{"models", std::move(list)}});
}

void ollama_ps(const HttpCall& call) {
  Json list = Json::array();
  for (const ModelHost::Shown& shown : call.host.show()) {
    if (shown.service == nullptr) continue;
    const ServedModel& model = shown.service->model();
    Json one = entry(shown.model.name, model_file(model.vocabulary->path(), shown.model.name));
    one["expires_at"] = shown.left ? iso_time(std::time(nullptr) + shown.left->count() / 1000) : kNever;
    one["size_vram"] = 0;
    one["context_length"] = model.trained_context;
    list.push_back(std::move(one));
  }
  call.reply({{"models", std::move(list)}});
}

void ollama_show(const HttpCall& call) {
  const ServedModel& model = call.model();
  const Json body = parse_json(call.in.body);
  JsonFields fields(body);
  const std::string name = fields.text("model", fields.text("name", ""));
  if (name.empty()) fail_field("model", "'model' is missing");
  fields.ignore({"verbose", "system", "template", "options"});
  fields.end();
  check_model(without_latest(name), model);
  const ModelFile file = model_file(model.vocabulary->path(), model.name);
  const std::string text = model.chat_template == nullptr ? "" : model.chat_template->source();
  call.reply({{"modelfile", fmt::format("# {}\nFROM {}\n", name, model.name)},
              {"parameters", parameters_of(model)},
              {"template", text},
              {"details", file.details},
              {"model_info", file.info},
              {"capabilities", capabilities_of(model)},
              {"modified_at", file.modified}});
}

void ollama_version(const HttpCall& call) {
  call.reply({{"version", version()}});
}

}  // namespace palimpsest

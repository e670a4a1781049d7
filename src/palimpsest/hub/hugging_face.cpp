#include "palimpsest/hub/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/core/nearest_name.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/hf_cache.h"

namespace palimpsest {
namespace {

using nlohmann::json;

HttpHeaders hub_headers() {
  HttpHeaders headers;
  if (const std::string token = hf_token(); !token.empty()) headers["authorization"] = "Bearer " + token;
  return headers;
}

std::string repository_url(const HubName& name) {
  return hub_endpoint() + "/" + name.repository();
}

std::string refusal(const HubName& name, int status) {
  const bool has_token = !hf_token().empty();
  if (status == 401 && !has_token)
    return fmt::format(
        "{} is not public, or does not exist (401): check the name, or set HF_TOKEN to a token that may read it",
        repository_url(name));
  if (status == 401) return fmt::format("{} refuses the token (401): set HF_TOKEN to a valid one", hub_endpoint());
  if (status == 403)
    return fmt::format("{} is not open to you (403): accept its licence on that page{}", repository_url(name),
                       has_token ? "" : ", and set HF_TOKEN");
  if (status == 404) {
    std::vector<std::string> known;
    for (const CatalogueEntry& entry : catalogue())
      if (!entry.hub.empty()) known.push_back(parse_hub_name(entry.hub).repository());
    return fmt::format("{} does not exist (404): check the name{}", repository_url(name),
                       did_you_mean(name.repository(), known));
  }
  return {};
}

std::string text_at(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::uint64_t size_at(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
}

HubFile file_of(const json& sibling) {
  HubFile file{.path = text_at(sibling, "rfilename"), .size = size_at(sibling, "size"), .sha256 = {}};
  if (const auto lfs = sibling.find("lfs"); lfs != sibling.end() && lfs->is_object()) {
    file.sha256 = lower_case(text_at(*lfs, "sha256"));
    if (file.size == 0) file.size = size_at(*lfs, "size");
  }
  return file;
}

}  // namespace

std::string hub_endpoint() {
  const char* given = std::getenv("HF_ENDPOINT");
  std::string endpoint = given == nullptr || *given == '\0' ? "https://huggingface.co" : given;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

HubModel find_hub_model(const Http& http, const HubName& name) {
  const Url url = parse_url(
      fmt::format("{}/api/models/{}/revision/main?blobs=true", hub_endpoint(), percent_encoded(name.repository())));
  std::string text;
  const HttpAnswer answer = http.get_text(url, hub_headers(), text);
  if (answer.status != 200) {
    const std::string sentence = refusal(name, answer.status);
    fail("{}", sentence.empty() ? fmt::format("{} answers with status {}: try again later", url.shown(), answer.status)
                                : sentence);
  }
  const json info = json::parse(text, nullptr, false);
  if (!info.is_object()) fail("{} does not answer as Hugging Face's API does: check HF_ENDPOINT", url.shown());
  HubModel model{.name = name, .commit = text_at(info, "sha"), .licence = {}, .files = {}};
  if (!is_safe_file_name(model.commit)) model.commit = "main";
  if (const auto card = info.find("cardData"); card != info.end() && card->is_object())
    model.licence = text_at(*card, "license");
  std::vector<HubFile> files;
  if (const auto siblings = info.find("siblings"); siblings != info.end() && siblings->is_array())
    for (const json& each : *siblings)
      if (each.is_object()) files.push_back(file_of(each));

  model.files = choose_files(files, name.tag);
  if (model.files.empty()) {
    const auto tags = tags_of(files);
    if (tags.empty())
      fail("{} has no GGUF files: look for a repository whose name ends with -GGUF, or convert the model",
           repository_url(name));
    if (std::ranges::find(tags, upper_case(name.tag)) != tags.end())
      fail("{}: not all parts of {} are there: choose another of {}", repository_url(name), name.tag,
           fmt::join(tags, ", "));
    fail("{} has no '{}'; it has {}{}", repository_url(name), name.tag, fmt::join(tags, ", "),
         did_you_mean(name.tag, tags));
  }
  model.name.tag = tag_of(model.files.front().file_name());
  return model;
}

RemoteFile hub_file(const HubModel& model, const HubFile& file) {
  return {.url = parse_url(
              fmt::format("{}/resolve/{}/{}", repository_url(model.name), model.commit, percent_encoded(file.path))),
          .headers = hub_headers(),
          .size = file.size,
          .sha256 = file.sha256.size() == 64 ? file.sha256 : "",
          .magic = "GGUF",
          .explain = [name = model.name](int status) { return refusal(name, status); }};
}

}  // namespace palimpsest

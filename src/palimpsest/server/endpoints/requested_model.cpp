#include "palimpsest/server/endpoints/requested_model.h"

#include <httplib.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "palimpsest/server/apis/ollama_request.h"
#include "palimpsest/server/request/json_fields.h"

namespace palimpsest {
namespace {

using Milliseconds = std::chrono::milliseconds;

// As Ollama has it: seconds, or a duration as in "10m" or "1h30m"; negative: for ever (nullopt).
std::optional<Milliseconds> read_keep_alive(const Json& value) {
  constexpr double kMax = 1e9;
  const auto refuse = [&] {
    fail_field("keep_alive", "'keep_alive' is {}: give seconds, or a duration as in \"10m\"", dump(value));
  };
  const auto of_seconds = [&](double seconds) -> std::optional<Milliseconds> {
    if (!std::isfinite(seconds) || seconds > kMax) refuse();
    if (seconds < 0) return std::nullopt;
    return Milliseconds(static_cast<long long>(seconds * 1000));
  };
  if (value.is_number()) return of_seconds(value.get<double>());
  if (!value.is_string()) refuse();
  std::string text = value.get<std::string>();
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative) rest.remove_prefix(1);
  double seconds = 0;
  if (rest.empty()) refuse();
  while (!rest.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number, std::chars_format::fixed);
    if (error != std::errc() || number < 0) refuse();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const std::string_view unit = rest.substr(0, std::min(rest.size(), rest.find_first_of("0123456789.")));
    rest.remove_prefix(unit.size());
    if (unit.empty() || unit == "s")
      seconds += number;
    else if (unit == "ms")
      seconds += number / 1000;
    else if (unit == "m")
      seconds += number * 60;
    else if (unit == "h")
      seconds += number * 3600;
    else
      refuse();
  }
  return of_seconds(negative ? -seconds - 1 : seconds);
}

}  // namespace

std::shared_ptr<Service> requested_model(ModelHost& host, const httplib::Request& in) {
  const bool ollama = in.path.starts_with("/api/");
  std::string name = in.has_param("model") ? in.get_param_value("model") : std::string();
  const Json* keep_alive = nullptr;
  Json body;
  if (in.method == "POST") {
    body = parse_json(in.body);
    JsonFields fields(body);
    name = fields.text("model", ollama ? fields.text("name", name) : name);
    keep_alive = ollama ? fields.take("keep_alive") : nullptr;
  }
  if (ollama) name = without_latest(name);
  if (name.empty()) {
    const std::vector<KnownModel> all = host.known();
    if (all.size() != 1) fail_field("model", "'model' is missing: there {}", names_of_models(all));
    name = all.front().name;
  }
  std::optional<std::optional<Milliseconds>> kept;
  if (keep_alive != nullptr) kept.emplace(read_keep_alive(*keep_alive));
  auto service = host.lease(name, [&] {
    if (in.is_connection_closed()) throw ApiError(499, "client_closed_request", "the client disconnected");
    if (host.closed())
      throw ApiError(503, "server_error", "the server is shutting down: try another, or again later", "",
                     "shutting_down");
  });
  if (kept) host.set_keep_alive(name, *kept);
  return service;
}

}  // namespace palimpsest

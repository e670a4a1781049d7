#include "palimpsest/model/rope_settings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"

namespace palimpsest {

namespace {

void check_range(const std::optional<double>& value, const char* flag, double min, double max) {
  if (value && !(*value >= min && *value <= max)) fail("{} {}: give a number from {} to {}", flag, *value, min, max);
}

void check_ranges(const RopeSettings& s) {
  check_range(s.scale, "--rope-scale", 0.01, 1e6);
  check_range(s.freq_scale, "--rope-freq-scale", 1e-6, 100);
  check_range(s.freq_base, "--rope-freq-base", 1, 1e15);
  check_range(s.ext_factor, "--yarn-ext-factor", 0, 1e6);
  check_range(s.attn_factor, "--yarn-attn-factor", 1e-6, 1e6);
  check_range(s.beta_slow, "--yarn-beta-slow", 1e-6, 1e9);
  check_range(s.beta_fast, "--yarn-beta-fast", 1e-6, 1e9);
  if (s.original_context && (*s.original_context < 1 || *s.original_context > INT32_MAX))
    fail("--yarn-orig-ctx {}: give a number from 1 to {}", *s.original_context, INT32_MAX);
  if (!s.scaling.empty() && s.scaling != "none" && s.scaling != "linear" && s.scaling != "yarn" &&
      s.scaling != "dynamic")
    fail("--rope-scaling \"{}\": give none, linear, yarn or dynamic", printable(s.scaling));
  if (s.scale && s.freq_scale)
    fail("--rope-scale and --rope-freq-scale say the same, the second as the inverse: give one of them");
  if (s.scaling == "none" && (s.scale || s.freq_scale))
    fail("--rope-scaling none has no scale: leave out --rope-scale and --rope-freq-scale");
}

// The dimensions that are rotated.
int rotary_dims(const ArchMetadata& keys) {
  if (keys.has("rope.dimension_count")) return keys.required("rope.dimension_count");
  if (keys.has("attention.key_length")) return keys.required("attention.key_length");
  return keys.required("embedding_length") / keys.required("attention.head_count");
}

}  // namespace

bool RopeSettings::given() const {
  return !scaling.empty() || scale || freq_base || freq_scale || ext_factor || attn_factor || beta_slow || beta_fast ||
         original_context;
}

std::vector<GgufOverride> rope_overrides(const RopeSettings& s, const ArchMetadata& keys, bool rotary) {
  if (!s.given()) return {};
  check_ranges(s);
  const std::string& path = keys.file().path();
  if (!rotary) fail("{}: has no rotary positions: leave out the options --rope-... and --yarn-...", path);

  const std::string file_type = keys.text("rope.scaling.type", "linear");
  const double old_style = keys.number("rope.scale_linear", 1, 0, 1e9);
  double file_scale = keys.number("rope.scaling.factor", old_style, 0, 1e9);
  if (file_scale == 0 || (file_type != "linear" && file_type != "yarn")) file_scale = 1;
  const std::string type = s.scaling.empty() ? file_type : s.scaling;
  const std::optional<double> given_scale = s.freq_scale ? 1 / *s.freq_scale : s.scale;
  const double scale = type == "none" ? 1 : given_scale.value_or(file_scale);
  if (!s.scaling.empty() && type != "none" && !given_scale && file_scale == 1)
    fail("--rope-scaling {} needs a scale, which {} has not: give --rope-scale, as in --rope-scale 4", type, path);
  if (type != "yarn" && (s.ext_factor || s.attn_factor || s.beta_slow || s.beta_fast))
    fail("{}: its rope scaling is {}: options --yarn-... need --rope-scaling yarn", path, type);
  if (type != "yarn" && type != "dynamic" && s.original_context)
    fail("{}: its rope scaling is {}: --yarn-orig-ctx needs --rope-scaling yarn or dynamic", path, type);

  // The context without scaling: the file's own says its context with its scale.
  const int context = keys.required("context_length", INT32_MAX);
  int original = context;
  if (file_scale != 1 && keys.has("rope.scaling.original_context_length"))
    original = keys.required("rope.scaling.original_context_length", INT32_MAX);
  else if (file_scale != 1 && file_type == "linear")
    original = std::max(1, static_cast<int>(std::lround(context / file_scale)));
  if (s.original_context) original = static_cast<int>(*s.original_context);
  const double trained = std::floor(original * scale + 0.5);
  if (trained < 1 || trained > INT32_MAX)
    fail("--rope-scale {}: gives a context of {} x {} tokens: give a smaller scale", scale, original, scale);

  std::vector<GgufOverride> out;
  const auto set = [&](const char* key, const auto& value) { out.push_back({keys.name(key), value}); };
  const auto set_if = [&](const char* key, const std::optional<double>& value) {
    if (value) set(key, *value);
  };
  double base = s.freq_base.value_or(keys.number("rope.freq_base", 10000, 1, 1e15));
  const bool scales = !s.scaling.empty() || given_scale || s.original_context;
  if (type == "dynamic") {
    const int dims = rotary_dims(keys);
    if (dims <= 2) fail("{}: {} rotary dimensions: --rope-scaling dynamic needs more than 2", path, dims);
    base *= std::pow(scale * scale - (scale - 1), static_cast<double>(dims) / (dims - 2));
  }
  if (s.freq_base || type == "dynamic") set("rope.freq_base", base);
  if (scales) {
    set("rope.scaling.type", std::string(type == "dynamic" ? "none" : type));
    set("rope.scaling.factor", type == "dynamic" ? 1.0 : scale);
    set("context_length", static_cast<std::int64_t>(trained));
  }
  if (type == "yarn" && scales) set("rope.scaling.original_context_length", std::int64_t{original});
  set_if("rope.scaling.yarn_ext_factor", s.ext_factor);
  set_if("rope.scaling.yarn_attn_factor", s.attn_factor);
  set_if("rope.scaling.yarn_beta_slow", s.beta_slow);
  set_if("rope.scaling.yarn_beta_fast", s.beta_fast);
  return out;
}

}  // namespace palimpsest

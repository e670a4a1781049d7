// Text files of heads for split=FILE (budget/split.h): a line per KV head, and one that names the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/cache/geometry.h"

namespace palimpsest {

// The first line of a file that belongs to one model: others refuse it.
std::string model_line(std::uint64_t fingerprint);
// "layer head SHAREx" for each head. `comment`: how they were made, without "#".
std::string profile_text(const HeadGeometry& geometry, std::uint64_t fingerprint, const std::string& comment,
                         std::span<const double> shares);
// The heads of the lowest `part` of `far` (eval/far_attention.h), in order.
std::vector<std::size_t> streaming_heads(std::span<const double> far, double part);
// "layer head streaming" for each of `streaming`; the others as comments. `measured`: what the numbers are.
std::string streaming_text(const HeadGeometry& geometry, std::uint64_t fingerprint, const std::string& comment,
                           const std::string& measured, std::span<const double> far,
                           std::span<const std::size_t> streaming);

}  // namespace palimpsest

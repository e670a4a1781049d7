// Which device has which layers: a range for each, in the order of the devices.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace palimpsest {

// The device of each part of a model, by the parts' bytes and the devices' shares (in any unit, none negative, not all
// 0): the first device has the first parts. A part is on the device in whose share of all bytes its middle is.
std::vector<int> place_layers(std::span<const std::size_t> bytes, std::span<const double> shares);

}  // namespace palimpsest

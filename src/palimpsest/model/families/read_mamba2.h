// The dimensions of Mamba-2 layers, common to their families.
#pragma once

namespace palimpsest {

class ArchMetadata;
struct Hyperparameters;

// Adds a state to all layers, or to those without KV heads. Throws Error.
void read_mamba2(const ArchMetadata& keys, Hyperparameters& h, bool all_layers);

}  // namespace palimpsest

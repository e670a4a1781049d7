// The dimensions of recurrent layers whose heads have states, common to their families.
#pragma once

namespace palimpsest {

class ArchMetadata;
struct Hyperparameters;

// Adds a state to all layers, or to those with query heads, but no KV heads. `tiled`: StateHeads. Throws Error.
void read_state_heads(const ArchMetadata& keys, Hyperparameters& h, bool all_layers, bool tiled = false);

}  // namespace palimpsest

// The dimensions of latent attention (LatentAttention), common to its families.
#pragma once

namespace palimpsest {

class ArchMetadata;
struct Hyperparameters;

// Fills Hyperparameters::latent and the scale of attention, without YaRN. Throws Error.
void read_latent(const ArchMetadata& keys, Hyperparameters& h);

}  // namespace palimpsest

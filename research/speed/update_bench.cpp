// The update of the KV cache alone (EQUIP, table 5): evicts 64 (--victims) of 1,024 tokens of each head and
// inserts as many. Compares our in-place update of pages with the papers' code (shift or gather into new tensors, then
// append) and with optimized versions of that code. Interleaved rounds, `--ms` milliseconds per variant and round.
// Prints JSON.
//
//   update_bench [--rows 1x64x64,32x64x128] [--type f32|f16|bf16] [--threads N] [--rounds N] [--ms N] [--victims N]
//   [--only 'NAME;NAME']
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "research/speed/flags.h"
#include "research/speed/machine.h"
#include "research/speed/paged_update.h"
#include "research/speed/row_cache.h"

namespace palimpsest::bench {
namespace {

constexpr int kTokens = 1024, kSinks = 4;

struct Options {
  std::string rows = "1x64x64,1x64x128,1x128x64,8x64x64,8x64x128,8x128x64,32x64x64,32x64x128";
  CacheType type = CacheType::kF32;
  int threads = 2, rounds = 5, victims = 64;
  double ms = 40;
  std::string only;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Variant {
  std::string name;
  std::function<void()> prepare, run;
};

// Seconds of one update: the mean over as many as fit into `ms`.
double sample(const Variant& variant, double ms) {
  double spent = 0;
  int count = 0;
  const double start = now();
  do {
    if (variant.prepare) variant.prepare();
    const double before = now();
    variant.run();
    spent += now() - before;
    ++count;
  } while (spent * 1e3 < ms && (now() - start) * 1e3 < 4 * ms);
  return spent / count;
}

// Bytes per second of a copy (read = written), in blocks of 1 MiB, between buffers larger than the CPU caches.
double copy_bandwidth(Team& team, bool streamed) {
  constexpr std::size_t kBlocks = 256, kBytes = 1 << 20;
  struct alignas(64) Block {
    std::byte bytes[kBytes];
  };
  const std::vector<Block> from(kBlocks);
  std::vector<Block> to(kBlocks);
  double best = 0;
  for (int pass = 0; pass < 4; ++pass) {
    const double start = now();
    team.run([&](int t) {
      for (std::size_t i = t; i < kBlocks; i += team.threads())
        streamed ? stream_copy(&to[i], &from[i], kBytes) : void(std::memcpy(&to[i], &from[i], kBytes));
    });
    best = std::max(best, kBlocks * kBytes / (now() - start));
  }
  return best;
}

nlohmann::json measure(const Options& o, Team& team, int sequences, int heads, int dim) {
  const int all = sequences * heads;
  const std::size_t row = static_cast<std::size_t>(dim) * (kv_format(o.type).tile_bytes / kTile);
  std::mt19937 random(1);
  std::vector<int> kept, slots, oldest;
  for (int h = 0; h < all; ++h) {
    std::vector<int> order(kTokens);
    for (int i = 0; i < kTokens; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    slots.insert(slots.end(), order.begin(), order.begin() + o.victims);
    std::sort(order.begin() + o.victims, order.end());
    kept.insert(kept.end(), order.begin() + o.victims, order.end());
    for (int i = 0; i < o.victims; ++i) oldest.push_back(kSinks + i);
  }
  const std::vector<std::byte> inserted(static_cast<std::size_t>(all) * o.victims * row, std::byte{1});
  const std::byte* const both[2] = {inserted.data(), inserted.data()};
  RowCache rows(all, kTokens, row);
  RowCache::Step shift{kSinks, o.victims, nullptr, oldest.data(), {both[0], both[1]}};
  RowCache::Step gather{kSinks, o.victims, kept.data(), slots.data(), {both[0], both[1]}};
  PagedUpdate ring(sequences, heads, dim, kTokens, o.victims, o.type, false);
  PagedUpdate scattered(sequences, heads, dim, kTokens, o.victims, o.type, true);
  ring.check(team), scattered.check(team);

  std::vector<Variant> variants;
  const auto add = [&](const std::string& name, std::function<void()> run, std::function<void()> prepare = {}) {
    const auto wanted = split(o.only, ';');
    if (o.only.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end())
      variants.push_back({name, std::move(prepare), std::move(run)});
  };
  add(
      "in place, oldest", [&] { ring.run(team); }, [&] { ring.choose(); });
  add(
      "in place, scattered", [&] { scattered.run(team); }, [&] { scattered.choose(); });
  add("in place into rows, oldest", [&] { rows.overwrite(team, shift); });
  add("in place into rows, scattered", [&] { rows.overwrite(team, gather); });
  const std::pair<const char*, Target> targets[] = {{"fresh", Target::kNewTensor},
                                                    {"fresh, huge pages", Target::kNewTensorHuge},
                                                    {"second buffer", Target::kReused},
                                                    {"second buffer, streamed", Target::kStreamed}};
  for (const bool gathers : {false, true}) {
    const std::string name = gathers ? "gather" : "shift";
    for (const auto& [kind, target] : targets)
      for (const int passes : {2, 1}) {
        if (passes == 2 && (target == Target::kReused || target == Target::kStreamed)) continue;
        add(fmt::format("{}, {}, {}", name, passes == 2 ? "evict then append" : "at once", kind),
            [&rows, &team, &shift, &gather, gathers, target, passes] {
              gathers ? rows.gather(team, gather, target, passes) : rows.shift(team, shift, target, passes);
            });
      }
  }
  add("shift inside the buffer", [&] { rows.slide(team, shift); });

  nlohmann::json samples = nlohmann::json::object();
  for (int round = -1; round < o.rounds; ++round)
    for (const Variant& variant : variants) {
      const double seconds = sample(variant, round < 0 ? 0 : o.ms);
      if (round >= 0) samples[variant.name].push_back(seconds);
    }
  return {{"batch", sequences},
          {"heads", heads},
          {"head_size", dim},
          {"type", name_of(o.type)},
          {"threads", o.threads},
          {"cache_bytes", 2.0 * all * kTokens * static_cast<double>(row)},
          {"new_bytes", 2.0 * all * o.victims * static_cast<double>(row)},
          {"seconds", samples}};
}

void run(Flags& flags) {
  Options o;
  o.rows = flags.text("--rows", o.rows);
  o.type = flags.type("--type", o.type);
  o.threads = flags.number("--threads", o.threads);
  o.rounds = flags.number("--rounds", o.rounds);
  o.ms = flags.number("--ms", static_cast<int>(o.ms));
  o.only = flags.text("--only", "");
  o.victims = flags.number("--victims", o.victims);
  if (o.victims < 1 || o.victims > kTokens / 2) fail("--victims {}: give 1 to {}", o.victims, kTokens / 2);
  flags.done("research/speed/update_bench.cpp");
  Team team(o.threads);
  nlohmann::json out = {{"copy_bytes_per_second", copy_bandwidth(team, false)},
                        {"streamed_copy_bytes_per_second", copy_bandwidth(team, true)},
                        {"rows", nlohmann::json::array()}};
  for (const auto& [batch, heads, size] : Flags::triples("--rows", o.rows))
    out["rows"].push_back(measure(o, team, batch, heads, size));
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  return palimpsest::bench::bench_main("update_bench", argc, argv, palimpsest::bench::run);
}

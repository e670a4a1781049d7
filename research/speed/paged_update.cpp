#include "research/speed/paged_update.h"

#include <algorithm>
#include <cstring>

#include "palimpsest/attention/work.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/error.h"
#include "palimpsest/speed/fill.h"

namespace palimpsest::bench {
namespace {

constexpr int kSinks = 4;

void shares(Team& team, int count, const std::function<void(int thread, int first, int last)>& body) {
  team.run([&](int t) { body(t, count * t / team.threads(), count * (t + 1) / team.threads()); });
}

}  // namespace

PagedUpdate::PagedUpdate(int sequences, int heads, int head_dim, int tokens, int victims, CacheType type, bool random)
    : sequences_(sequences), heads_(heads), dim_(head_dim), victims_(victims), random_(random) {
  CacheOptions options;
  options.geometry = HeadGeometry::uniform(1, heads, head_dim, head_dim, type);
  options.page_size = 64;
  options.shared = !random;
  for (int s = 0; s < sequences; ++s) {
    cache_.push_back(std::make_unique<Cache>(options));  // one pool per sequence: threads work on different sequences
    cache_.back()->insert(tokens);
    fill_pages_with_noise(*cache_.back(), static_cast<std::uint32_t>(s + 1));
    plan_.emplace_back().drop.resize(static_cast<std::size_t>(cache_.back()->tables()));
  }
  const std::size_t rows = static_cast<std::size_t>(sequences) * victims * heads * head_dim;
  std::normal_distribution<float> normal;
  k_.resize(rows), v_.resize(rows);
  for (std::size_t i = 0; i < rows; ++i) k_[i] = normal(generator_), v_[i] = normal(generator_);
  relative_.resize(static_cast<std::size_t>(victims));
  view_.resize(static_cast<std::size_t>(sequences));
  for (int s = 0; s < sequences; ++s) {
    SequenceTokens& tokens = tokens_.emplace_back();
    tokens.first = s * victims;
    tokens.count = victims;
    tokens.relative = relative_.data();
  }
}

void PagedUpdate::choose() {
  for (int s = 0; s < sequences_; ++s)
    for (int t = 0; t < cache_[s]->tables(); ++t) {
      const SlotTable& table = cache_[s]->table(t);
      std::vector<int> order(static_cast<std::size_t>(table.slots()));
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      const auto older = [&](int a, int b) { return table.position()[a] < table.position()[b]; };
      std::vector<int>& drop = plan_[s].drop[t];
      if (random_) {
        std::shuffle(order.begin(), order.end(), generator_);
        drop.assign(order.begin(), order.begin() + victims_);
        std::sort(drop.begin(), drop.end(), older);
      } else {
        std::sort(order.begin(), order.end(), older);
        drop.assign(order.begin() + kSinks, order.begin() + kSinks + victims_);
      }
    }
}

LayerStep PagedUpdate::step() const {
  LayerStep step;
  step.shape.query_heads = step.shape.kv_heads = heads_;
  step.shape.head_dim = step.shape.value_dim = dim_;
  step.shape.scale = 1;
  step.cache = view_.data();
  step.tokens = tokens_.data();
  step.sequences = sequences_;
  step.k = {k_.data(), std::int64_t{heads_} * dim_, dim_};
  step.v = {v_.data(), std::int64_t{heads_} * dim_, dim_};
  return step;
}

void PagedUpdate::write(Team& team) {
  const LayerStep step = this->step();
  scratch_.resize(static_cast<std::size_t>(team.threads()));
  for (auto& memory : scratch_) memory.resize(UnitMemory::floats(step.shape) + 16);
  shares(team, sequences_ * heads_, [&](int thread, int first, int last) {
    UnitMemory memory{};
    void* at = scratch_[thread].data();
    std::size_t room = scratch_[thread].size() * sizeof(float);
    memory.cut(step.shape, static_cast<float*>(std::align(64, 1, at, room)));
    for (int i = first; i < last; ++i) {
      const HeadStep work = head_step(step, i / heads_, i % heads_);
      for (int unit = 0; unit < std::max(1, work.insert_units); ++unit) insert_tokens(work, unit, memory);
    }
  });
}

void PagedUpdate::run(Team& team) {
  shares(team, sequences_, [&](int, int first, int last) {
    for (int s = first; s < last; ++s) {
      cache_[s]->apply(plan_[s]);
      cache_[s]->insert(victims_);
      view_[s] = cache_[s]->view(0);
    }
  });
  write(team);
}

float PagedUpdate::element(int sequence, int head, int slot, int dim, bool value) const {
  const LayerView& v = view_[sequence];
  const std::byte* page = v.head[head].page[slot / v.page_size];
  const int offset = slot % v.page_size;
  return value ? kv_format(v.value_type).load(page + value_offset(v), value_index(v, offset) + dim)
               : kv_format(v.key_type).load(page, key_index(v, offset, dim));
}

void PagedUpdate::check(Team& team) {
  choose();
  for (int s = 0; s < sequences_; ++s) view_[s] = cache_[s]->view(0);
  std::vector<float> before;
  const auto all = [&](const auto& visit) {
    for (int h = 0; h < heads_; ++h)
      for (int slot = 0; slot < view_[0].head[h].slots->slots; ++slot)
        for (int d = 0; d < dim_; ++d) visit(h, slot, d);
  };
  all([&](int h, int slot, int d) {
    before.push_back(element(0, h, slot, d, false)), before.push_back(element(0, h, slot, d, true));
  });
  run(team);
  std::size_t i = 0;
  const double bound = view_[0].key_type == CacheType::kF32 ? 0 : view_[0].key_type == CacheType::kF16 ? 1e-3 : 1e-2;
  all([&](int h, int slot, int d) {
    const SlotsView& slots = *view_[0].head[h].slots;
    const int* const found = std::find(slots.inserted, slots.inserted + slots.inserted_count, slot);
    for (const bool value : {false, true}) {
      float expected = before[i++];
      if (found != slots.inserted + slots.inserted_count) {
        const std::size_t row = static_cast<std::size_t>(found - slots.inserted) * heads_ + h;
        expected = (value ? v_ : k_)[row * dim_ + d];
      }
      const float is = element(0, h, slot, d, value);
      if (std::abs(is - expected) > bound * std::max(1.0F, std::abs(expected)))
        fail("the update wrote {} where {} belongs (head {}, slot {}, dimension {})", is, expected, h, slot, d);
    }
  });
}

}  // namespace palimpsest::bench

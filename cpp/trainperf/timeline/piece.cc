#include "trainperf/timeline/piece.h"

namespace trainperf {
namespace {

constexpr size_t kUsualLog = 4096;  // entries that a piece in store may keep the memory of

}  // namespace

void Piece::Reset(int64_t start) {
  for (uint32_t rest = used; rest != 0; rest &= rest - 1) rows[__builtin_ctz(rest)] = Measures{};
  start_ns = end = start;
  cut = Cut::kNone;
  soft = tentative = loader_start = tentative_loader_start = compiled = false;
  flags = 0;
  fetches = tentative_fetches = backwards = optimizer_steps = 0;
  compile_ns = 0;
  used = 0;
  details.Clear();
  gap_details.Clear();
  segments.Clear();
  host_log.Clear();
  host_log.Shrink(kUsualLog);
  spans.clear();
  pending_fetches.clear();
}

void Piece::Append(const Piece& later, size_t max_segments) {
  for (uint32_t rest = later.used; rest != 0; rest &= rest - 1) {
    const int row = __builtin_ctz(rest);
    rows[row] += later.rows[row];
  }
  used |= later.used;
  end = later.end;
  tentative |= later.tentative;
  loader_start |= later.loader_start;
  tentative_loader_start |= later.tentative_loader_start;
  compiled |= later.compiled;
  flags |= later.flags;
  fetches += later.fetches;
  tentative_fetches += later.tentative_fetches;
  backwards += later.backwards;
  optimizer_steps += later.optimizer_steps;
  compile_ns += later.compile_ns;
  details.Append(later.details);
  gap_details.Append(later.gap_details);
  segments.Append(later.segments, max_segments);
  host_log.Append(later.host_log, SegmentList::kMaxLog);
  spans.insert(spans.end(), later.spans.begin(), later.spans.end());
  pending_fetches.insert(pending_fetches.end(), later.pending_fetches.begin(), later.pending_fetches.end());
}

void Piece::SettleGap(Row row) {
  for (const Row gap : {static_cast<Row>(kGapRow), Tentative(kGapRow)}) {
    if ((used >> gap & 1) == 0) continue;
    Add(IsTentative(gap) ? Tentative(row) : row, rows[gap]);
    rows[gap] = Measures{};
    used &= ~(1u << gap);
  }
  if (!gap_details.entries().empty()) {
    for (const DetailTable::Entry& entry : gap_details.entries()) {
      DetailKey key = entry.key;
      key.row = IsTentative(key.row) ? Tentative(row) : row;
      details.Add(key, entry.ns, entry.count);
    }
    gap_details.Clear();
  }
  segments.SettleGap(row);
  host_log.SettleGap(row);
}

template <typename RowFunction>
void Piece::MoveRows(RowFunction&& new_row) {
  for (uint32_t rest = used; rest != 0; rest &= rest - 1) {
    const int row = __builtin_ctz(rest);
    const Row to = new_row(static_cast<Row>(row));
    if (to == row) continue;
    const Measures moved = rows[row];
    rows[row] = Measures{};
    used &= ~(1u << row);
    Add(to, moved);
  }
  details.MoveRows(new_row);
  gap_details.MoveRows(new_row);
  segments.MoveRows(new_row);
  host_log.MoveRows(new_row);
}

void Piece::MakeTentative() {
  MoveRows([](Row row) { return Tentative(row); });
  tentative = true;
  tentative_fetches += fetches;
  fetches = 0;
  tentative_loader_start |= loader_start;
  loader_start = false;
  for (PendingFetch& fetch : pending_fetches) fetch.tentative = fetch.record.on_step_thread;
}

void Piece::Confirm() {
  if (!tentative) return;
  MoveRows([](Row row) { return IsTentative(row) ? Confirmed(row) : row; });
  const std::vector<DetailTable::Entry> gap = gap_details.entries();  // of which some are no gap any more
  gap_details.Clear();
  for (const DetailTable::Entry& entry : gap) AddDetail(entry.key, entry.ns, entry.count);
  tentative = false;
  tentative_fetches = 0;
  tentative_loader_start = false;
  flags |= kHasValidation;
  for (PendingFetch& fetch : pending_fetches) {
    fetch.record.validation |= fetch.tentative;
    fetch.tentative = false;
  }
}

void Piece::Refute() {
  if (!tentative) return;
  MoveRows([](Row row) { return Plain(row); });
  tentative = false;
  fetches += tentative_fetches;
  tentative_fetches = 0;
  loader_start |= tentative_loader_start;
  tentative_loader_start = false;
  for (PendingFetch& fetch : pending_fetches) fetch.tentative = false;
}

int64_t Piece::unsettled_delay() const {
  int64_t sum = 0;
  for (uint32_t rest = used; rest != 0; rest &= rest - 1) sum += rows[__builtin_ctz(rest)].delay;
  return sum;
}

bool Piece::has_cpu() const {
  for (uint32_t rest = used; rest != 0; rest &= rest - 1) {
    if (rows[__builtin_ctz(rest)].cpu > 0) return true;
  }
  return false;
}

}  // namespace trainperf

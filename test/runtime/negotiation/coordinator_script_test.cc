// Golden scripts of the Coordinator. All ranks are direct children of the root (size <= 9), and each command reports
// for one of them. See testdata/*.txt for the language.
#include <catch2/catch.hpp>
#include <sstream>

#include "runtime/negotiation/coordinator.h"
#include "test/support/golden_script.h"

namespace hvd::negotiation {
namespace {

using hvd::test::GoldenCommand;

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  return parts;
}

std::vector<int> ints(const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& part : split(text, ',')) numbers.push_back(std::stoi(part));
  return numbers;
}

wire::Request make_request(const GoldenCommand& c) {
  wire::Request r;
  r.rank = static_cast<int>(c.number("rank", 0));
  r.process_set = static_cast<std::int32_t>(c.number("set", 0));
  r.name = c.text("name", "a");
  r.op = c.one_of<OpType>("op", "allreduce", kOpTypeCount, op_type_name);
  r.dtype = c.one_of<DataType>("dtype", "float32", kDataTypeCount, data_type_name);
  r.reduce_op = c.one_of<ReduceOp>("reduce", "Sum", kReduceOpCount, reduce_op_name);
  for (const int d : ints(c.text("shape", "4"))) {
    if (d >= 0) r.shape.push_back(d);  // "shape=-1": a scalar
  }
  r.device = static_cast<int>(c.number("device", kCpuDevice));
  r.root_rank = static_cast<int>(c.number("root", -1));
  r.prescale = c.real("prescale", 1.0);
  r.postscale = c.real("postscale", 1.0);
  if (const auto group = split(c.text("group", ""), ','); !group.empty()) {
    wire::GroupKey key;
    for (const std::string& name : group) key.add(name);
    r.group_key = key.value();
    r.group_size = static_cast<std::uint32_t>(group.size());
  }
  return r;
}

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (const int n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

struct ItemPrinter {
  std::string operator()(const wire::CacheHit& hit) const {
    return "  hit " + std::to_string(wire::value(hit.bit)) + "\n";
  }
  std::string operator()(const wire::Evict& evict) const {
    return "  evict " + std::to_string(wire::value(evict.bit)) + "\n";
  }
  std::string operator()(const wire::Response& r) const {
    std::string text = "  " + std::string(op_type_name(r.op)) + " " + r.name;
    if (r.process_set != 0) text += " set=" + std::to_string(r.process_set);
    if (r.is_error()) return text + joined(r) + "\n    " + r.status().to_string() + "\n";
    if (r.op == OpType::kJoin) return text + " last=" + std::to_string(r.root_rank) + "\n";
    text += " " + std::string(data_type_name(r.dtype)) + " " + to_string(r.shape);
    if (r.root_rank >= 0) text += " root=" + std::to_string(r.root_rank);
    if (!r.first_dims.empty()) {
      text += " first_dims=";
      for (std::size_t i = 0; i < r.first_dims.size(); ++i)
        text += (i == 0 ? "" : ",") + std::to_string(r.first_dims[i]);
    }
    if (r.on_gpu) text += " gpu";
    if (r.bit != wire::CacheBit::kNone) text += " bit=" + std::to_string(wire::value(r.bit));
    return text + joined(r) + "\n";
  }
  std::string operator()(const wire::SetDecision& d) const {
    std::string text = "  sets";
    for (const auto& e : d.entries) {
      text += " " + std::to_string(e.id) + (e.existed ? "(existed)" : "") + "=[" + list(e.ranks) + "]#" +
              std::to_string(e.context_id);
    }
    if (d.kind == wire::SetChange::Kind::kRemove) text += " removed";
    if (d.error != StatusCode::kOk) text += "\n    " + Status(d.error, d.error_message).to_string();
    return text + "\n";
  }
  std::string operator()(const wire::WaitAnswer& answer) const {
    return "  answer context=" + std::to_string(answer.context_id) + "\n";
  }
  static std::string joined(const wire::Response& r) { return r.joined.empty() ? "" : " joined=" + list(r.joined); }
};

class Script {
 public:
  std::string run(const GoldenCommand& c) {
    if (c.name == "job") return job(c);
    if (c.name == "step") return step(c);
    if (c.name == "deadline") return deadline();
    if (c.name == "done") return coordinator_->on_batch_done(static_cast<std::int32_t>(c.number("set", 0))), "";
    if (c.name == "batching") return batching(c);
    if (c.name == "lost")
      return coordinator_->on_rank_lost(static_cast<int>(c.number("rank", 0)), c.text("why", "")), "";
    return report(c);
  }

 private:
  std::string job(const GoldenCommand& c) {
    CoordinatorOptions options;
    options.tree = topology::TreePlan(static_cast<int>(c.number("size", 2)));
    REQUIRE(options.tree.size() <= 9);
    options.cache_capacity = static_cast<std::size_t>(c.number("cache", 1024));
    options.max_in_flight = static_cast<int>(c.number("in_flight", 1000));
    options.batching_delay = std::chrono::milliseconds(c.number("delay", 0));
    options.limits.threshold = static_cast<std::uint64_t>(c.number("threshold", 1024));
    options.stall.enabled = c.number("stall", 60000) > 0;
    options.stall.check_time = Millis(c.number("stall", 60000));
    options.stall.shutdown_time = Millis(c.number("stall_shutdown", 0));
    options.stall.no_progress = Millis(c.number("no_progress", 300000));
    coordinator_ = std::make_unique<Coordinator>(options);
    threshold_ = options.limits.threshold;
    return "";
  }

  // batching threshold=bytes delay=ms
  std::string batching(const GoldenCommand& c) {
    coordinator_->set_batching(static_cast<std::uint64_t>(c.number("threshold", 1024)), Millis(c.number("delay", 0)));
    return "";
  }

  // step [t=ms]: everything that is decided then.
  std::string step(const GoldenCommand& c) {
    now_ = start_ + Millis(c.number("t", std::chrono::duration_cast<Millis>(now_ - start_).count()));
    std::string text;
    while (const auto decision = coordinator_->step(now_)) {
      text += "decision " + std::to_string(decision->sequence);
      const std::uint64_t threshold = decision->limits.threshold;
      text += threshold == threshold_ ? "\n" : " threshold=" + std::to_string(threshold) + "\n";
      for (const auto& item : decision->items) text += std::visit(ItemPrinter{}, item);
      if (decision->stop)
        text +=
            "  stop rank=" + std::to_string(decision->stop->rank) + " " + decision->stop->status().to_string() + "\n";
    }
    for (const Note& note : coordinator_->take_notes()) {
      text += (note.level == Note::Level::kError ? "ERROR " : "WARNING ") + note.text + "\n";
    }
    return text.empty() ? "nothing\n" : text;
  }

  std::string deadline() {
    const auto next = coordinator_->next_deadline();
    if (!next) return "deadline never\n";
    return "deadline " + std::to_string(std::chrono::duration_cast<Millis>(*next - start_).count()) + "\n";
  }

  std::string report(const GoldenCommand& c) {
    wire::Report report;
    const int rank = static_cast<int>(c.number("rank", 0));
    if (c.name == "request") {
      report.requests.push_back(make_request(c));
    } else if (c.name == "bits") {
      for (const int bit : ints(c.words.at(0)))
        report.ready_bits.push_back(wire::CacheBit{static_cast<std::uint64_t>(bit)});
    } else if (c.name == "stale") {
      for (const int bit : ints(c.words.at(0)))
        report.stale_bits.push_back(wire::CacheBit{static_cast<std::uint64_t>(bit)});
    } else if (c.name == "join") {
      report.joins.push_back({static_cast<std::int32_t>(c.number("set", 0)), rank});
    } else if (c.name == "shutdown") {
      report.shutdown_ranks.push_back(rank);
    } else if (c.name == "sets") {
      report.set_changes.push_back(set_change(c, rank));
    } else if (c.name == "wait") {
      report.waits.push_back(wait(c, rank));
    } else {
      FAIL("unknown command " << c.name);
    }
    const Status status = coordinator_->add_report(static_cast<int>(c.number("from", rank)), report, now_);
    return status.is_ok() ? "" : status.to_string() + "\n";
  }

  // wait rank=0 blocked|running|overdue|moving name=a turn=1 peers=1,2 ms=1000
  static wire::Wait wait(const GoldenCommand& c, int rank) {
    wire::Wait wait;
    const std::string& kind = c.words.at(0);
    wait.kind = kind == "blocked"   ? wire::Wait::Kind::kSubmitted
                : kind == "moving"  ? wire::Wait::Kind::kMoving
                : kind == "running" ? wire::Wait::Kind::kRunning
                                    : wire::Wait::Kind::kOverdue;
    wait.process_set = static_cast<std::int32_t>(c.number("set", 0));
    wait.context_id = static_cast<std::uint64_t>(c.number("context", 0));
    wait.name = c.text("name", "a");
    wait.fused = static_cast<std::uint32_t>(c.number("fused", 0));
    wait.turn = static_cast<std::uint64_t>(c.number("turn", 1));
    wait.millis = static_cast<std::uint32_t>(c.number("ms", 0));
    wait.ranks = {rank};
    wait.peers = ints(c.text("peers", ""));
    wait.history = c.text("history", "");
    return wait;
  }

  // sets rank=0 static|add|remove ranks=0,1;2,3 id=1
  static wire::SetChange set_change(const GoldenCommand& c, int rank) {
    wire::SetChange change;
    change.rank = rank;
    const std::string& kind = c.words.at(0);
    change.kind = kind == "static" ? wire::SetChange::Kind::kStatic
                  : kind == "add"  ? wire::SetChange::Kind::kAdd
                                   : wire::SetChange::Kind::kRemove;
    change.set_id = static_cast<std::int32_t>(c.number("id", 0));
    for (const std::string& ranks : split(c.text("ranks", ""), ';')) change.rank_lists.push_back(ints(ranks));
    if (change.kind == wire::SetChange::Kind::kStatic) {
      for (const auto& ranks : change.rank_lists) change.digests.push_back(wire::digest_of(ranks));
    }
    return change;
  }

  const TimePoint start_{std::chrono::hours(1)};
  TimePoint now_ = start_;
  std::unique_ptr<Coordinator> coordinator_;
  std::uint64_t threshold_ = 0;  // of the job
};

TEST_CASE("Coordinator follows its golden scripts", "[unit][negotiation]") {
  for (const auto& path : hvd::test::golden_scripts(std::string(HVD_TEST_SOURCE_DIR) + "/testdata")) {
    DYNAMIC_SECTION(path.stem().string()) {
      Script script;
      hvd::test::run_golden_script(path, [&](const GoldenCommand& command) { return script.run(command); });
    }
  }
}

}  // namespace
}  // namespace hvd::negotiation

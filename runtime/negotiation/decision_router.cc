#include "runtime/negotiation/decision_router.h"

#include <algorithm>
#include <variant>

#include "runtime/wire/codec.h"

namespace hvd::negotiation {

using wire::value;

DecisionRouter::DecisionRouter(topology::TreePlan plan, int rank)
    : plan_(plan), rank_(rank), children_(plan.children(rank)), sent_(children_.size()) {
  for (std::size_t i = 0; i < children_.size(); ++i) everybody_ |= Mask{1} << i;
}

struct DecisionRouter::ItemRouter {
  DecisionRouter& router;

  Mask operator()(const wire::Response& response) const {
    const auto set = router.sets_.find(response.process_set);
    if (set == router.sets_.end()) return router.everybody_;
    if (response.bit != wire::CacheBit::kNone) router.bits_[value(response.bit)] = {response.process_set, set->second};
    return set->second;
  }
  Mask operator()(const wire::CacheHit& hit) const {
    const auto bit = router.bits_.find(value(hit.bit));
    return bit == router.bits_.end() ? router.everybody_ : bit->second.children;
  }
  Mask operator()(const wire::Evict& evict) const {
    const Mask concerned = (*this)(wire::CacheHit{evict.bit});
    router.bits_.erase(value(evict.bit));
    return concerned;
  }
  Mask operator()(const wire::WaitAnswer&) const { return router.everybody_; }  // rare, and its set may be gone
  Mask operator()(const wire::SetDecision& decision) const {
    for (const auto& entry : decision.entries) {
      if (decision.kind == wire::SetChange::Kind::kRemove) {
        if (router.sets_.erase(entry.id) == 0) continue;
        std::erase_if(router.bits_, [&](const auto& bit) { return bit.second.process_set == entry.id; });
      } else if (!entry.existed) {
        add_set(entry);
      }
    }
    return router.everybody_;
  }
  void add_set(const wire::SetDecision::Entry& entry) const {
    Mask mask = 0;
    for (const int rank : entry.ranks) {
      const int child = router.plan_.child_towards(router.rank_, rank);
      if (child >= 0) mask |= Mask{1} << (child - router.children_.front());
    }
    if (mask != router.everybody_) router.sets_[entry.id] = mask;
  }
};

std::vector<DecisionRouter::Outgoing> DecisionRouter::route(const wire::Decision& decision) {
  std::vector<Outgoing> out;
  if (children_.empty()) return out;
  std::vector<Mask> concerned;
  Mask children = decision.stop ? everybody_ : 0;
  for (const wire::DecisionItem& item : decision.items) {
    concerned.push_back(std::visit(ItemRouter{*this}, item));
    children |= concerned.back();
  }
  const bool is_numbered = decision.sequence != 0;  // else a node without parent or memory has decided by itself
  for (std::size_t i = 0; is_numbered && i < children_.size(); ++i) sent_[i] += children >> i & 1;
  for (const Share& share : split(children, concerned)) {
    out.push_back(pack(decision, concerned, is_numbered ? share : Share{share.children, 0}));
  }
  return out;
}

// Children that have got equally many decisions so far begin as one share; each item then divides the shares into those
// that it concerns and the rest. What is left together gets one message, encoded once.
std::vector<DecisionRouter::Share> DecisionRouter::split(Mask children, const std::vector<Mask>& concerned) const {
  std::vector<Share> shares;
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if ((children >> i & 1) == 0) continue;
    const auto same =
        std::find_if(shares.begin(), shares.end(), [&](const Share& s) { return s.sequence == sent_[i]; });
    if (same == shares.end()) {
      shares.push_back({Mask{1} << i, sent_[i]});
    } else {
      same->children |= Mask{1} << i;
    }
  }
  for (const Mask mask : concerned) {
    for (std::size_t i = 0, n = shares.size(); i < n; ++i) {
      const Mask rest = shares[i].children & ~mask;
      if (rest == 0 || rest == shares[i].children) continue;
      shares.push_back({rest, shares[i].sequence});
      shares[i].children &= mask;
    }
  }
  return shares;
}

DecisionRouter::Outgoing DecisionRouter::pack(const wire::Decision& decision, const std::vector<Mask>& concerned,
                                              const Share& share) const {
  Outgoing out;
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if ((share.children >> i & 1) != 0) out.children.push_back(children_[i]);
  }
  const bool whole = std::all_of(concerned.begin(), concerned.end(), [&](Mask m) { return (m & share.children) != 0; });
  if (whole && share.sequence == decision.sequence) {
    out.message = wire::encode(decision);
    return out;
  }
  wire::Decision part;
  part.sequence = share.sequence;
  part.limits = decision.limits;
  part.stop = decision.stop;
  for (std::size_t i = 0; i < concerned.size(); ++i) {
    if ((concerned[i] & share.children) != 0) part.items.push_back(decision.items[i]);
  }
  out.message = wire::encode(part);
  return out;
}

}  // namespace hvd::negotiation

// The question about a way back: what was moved by a plan, by balancing of late, or by a drain.

import { ask, make, whole } from "./core.js";

export function wayBackQuestion(asked, words) { // what goes back is asked before, and that is proposed
  let moves = {};
  return { kind: "propose_plan", about: words, yes: "Propose it", title: `Propose the way back of ${words}`,
    says: ["Each bundle that is still where it was put goes back to whom it was taken from. "
      + "It becomes a plan of its own, which waits until somebody approves it."],
    make: () => ({ moves, why: `undo of ${words}` }),
    foresee: async () => {
      moves = {};
      try {
        const { status, value } = await ask(`/v1/undo?${new URLSearchParams(asked)}`);
        if (status !== 200) return { isPossible: false, nodes: [make("p", value.reason, "silent")] };
        moves = value.moves;
        return { isPossible: true, nodes: told(value) };
      } catch {
        return { isPossible: false, nodes: [make("p", "the service can't be reached", "silent")] };
      }
    } };
}

function told({ moves, left }) {
  const names = Object.entries(moves);
  const list = make("ul");
  list.append(...names.slice(0, 10).map(([bundle, broker]) => make("li", `${bundle} → ${broker}`)),
    ...(names.length > 10 ? [make("li", `and ${whole(names.length - 10)} more`)] : []),
    ...left.slice(0, 10).map((text) => make("li", text, "dim")));
  return [make("p", `${whole(names.length)} ${names.length === 1 ? "bundle" : "bundles"} would go back:`),
    list];
}

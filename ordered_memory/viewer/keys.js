// Keys: left, right, Home and End move through time, and space plays. In the tree, up and down go from node
// to node. Escape hides the note beside the pointer.

/** @type {Board | undefined} the board that keys go to while nothing has the focus */
let active;
/** @type {WeakMap<Element, Board>} */
const boards = new WeakMap();

/** @param {Board} board */
function listenToKeys(board) {
  boards.set(board.element, board);
  board.element.addEventListener("keydown", (event) => press(board, event));
  for (const name of ["pointerdown", "focusin"]) board.element.addEventListener(name, () => (active = board));
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const one of document.querySelectorAll(".om-board")) boards.get(one)?.light.off();
  if (event.target === document.body) pressActive(event);
});

/**
 * Pass a key to the active board or, if there is none, to the first board on the page that has steps. If the
 * board is out of view, or with Shift, the key scrolls the page as usual.
 * @param {KeyboardEvent} event
 */
function pressActive(event) {
  if (!active?.element.isConnected) {
    const shown = [...document.querySelectorAll(".om-board")].map((one) => boards.get(one));
    active = shown.find((board) => board?.timeline);
  }
  if (active && !event.shiftKey && inView(active.element)) press(active, event);
}

/** @param {Element} shown */
function inView(shown) {
  const { top, bottom } = shown.getBoundingClientRect();
  return top < innerHeight && bottom > 0;
}

/**
 * @param {Board} board
 * @param {KeyboardEvent} event
 */
function press(board, event) {
  const others = event.altKey || event.ctrlKey || event.metaKey || closest(event.target, "select");
  if (others || !board.timeline) return;
  const { player, tree } = board;
  const node = closest(event.target, ".om-node");
  /** @type {Record<string, () => void>} */
  const actions = {
    ArrowLeft: () => player.go(player.frame - 1),
    ArrowRight: () => player.go(player.frame + 1),
    Home: () => player.go(0),
    End: () => player.go(player.length - 1),
  };
  if (node) {
    actions.ArrowUp = () => tree?.move(1);
    actions.ArrowDown = () => tree?.move(-1);
    actions.Enter = actions[" "] = () => board.jump(node);
  } else if (!closest(event.target, "button")) {
    actions[" "] = () => player.toggle();
  }
  const act = actions[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

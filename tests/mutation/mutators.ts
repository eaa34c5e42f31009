/**
 * The mutators: those of Stryker that matter here, and some of our own.
 *
 * @module
 */

/** A node of Babel's syntax tree, as far as the mutators read it. */
// deno-lint-ignore no-explicit-any
export type Node = { readonly type: string; readonly [property: string]: any };

/** The part of Babel's `NodePath` that the mutators use. */
export interface Path {
  readonly node: Node;
  readonly parent: Node | undefined;
  readonly parentPath: Path | null;
}

/** Returns the replacements of a node, as Stryker's mutators do. */
export interface Mutator {
  readonly name: string;
  mutate(path: Path, context?: unknown): Iterable<Node>;
}

/**
 * Stryker's mutators that are left out: regular expressions, most of whose mutants are equivalent; arrow functions, whose
 * bodies the others mutate; and removed calls, for which `StatementRemoval` stands.
 */
const LEFT_OUT: readonly string[] = ["Regex", "ArrowFunction", "CallExpression"];

/**
 * The operators by which comparisons are replaced. Their negations are left out: a condition becomes true and false anyway,
 * which says more.
 */
const BOUNDARY: Readonly<Record<string, string>> = { "<": "<=", "<=": "<", ">": ">=", ">=": ">" };

/** What decides for a mutator of Stryker whether it mutates a node. It mutates all nodes if it is not here. */
const SELECTED: Readonly<Record<string, (path: Path) => boolean>> = {
  StringLiteral: isMeaningfulText,
  // An empty object is accepted by the compiler mostly where it is an argument: options.
  ObjectLiteral: ({ parent }) => /^(Call|New)Expression$/.test(parent?.type ?? ""),
  // An empty branch is the same as a condition that is false.
  BlockStatement: ({ node, parent }) =>
    !(parent?.type === "IfStatement" && parent.consequent === node && parent.alternate === null),
};

/** Names of constants that bound something: their numbers are mutated. */
const BOUNDS = /TRIES|RETRIES|ATTEMPTS|REFUSALS|LIMIT|MAX|MIN_|BOUND/;

/** Names of constants whose texts are recorded or sent. */
const RECORDED = /TAG|FINALIZER|ANNOTATION|LABEL|HEADER|PREFIX|LEASE/;

/** Properties of arguments whose absence changes what a request, a command or a file operation may do. */
const GUARDING =
  /^(uid|resourceVersion|preconditions|finalizers|ownerReferences|blockOwnerDeletion|controller|signal|timeoutMs|deadlineMs|detached|mode|force|recursive|permissions|headers|fieldManager|propagationPolicy|mutates|createNew|leaseDurationSeconds|closed|onlyIf|withoutDependents|withoutTags|withoutGroupTag|healthy|dryRun)$/;

const OPTION = /^--?[A-Za-z]/;

/** A media type, a finalizer, or the key of a label or annotation. */
const QUALIFIED = /^[a-z][\w.-]*\/[\w.+-]+$/;

/** Removes a statement that is one of several in its block, and is not a log message. */
const statementRemoval: Mutator = {
  name: "StatementRemoval",
  *mutate({ node, parent }) {
    if (node.type !== "ExpressionStatement" || parent?.type !== "BlockStatement" || parent.body.length < 2) return;
    if (node.expression.type === "CallExpression" && isLogCall(node.expression.callee)) return;
    if (/^(Call|Await|Assignment|Update|Unary|OptionalCall|Yield)/.test(node.expression.type)) {
      yield { type: "EmptyStatement" };
    }
  },
};

/**
 * Swaps two neighboring statements of which one awaits something: what has to be written, noted or registered before an
 * answer comes then is so after it.
 */
const statementOrder: Mutator = {
  name: "StatementOrder",
  *mutate({ node }) {
    if (node.type !== "BlockStatement") return;
    const body: Node[] = node.body;
    for (let index = 1; index < body.length; index++) {
      if (!areInAnyOrder(body[index - 1]!, body[index]!)) continue;
      const swapped = [...body];
      [swapped[index - 1], swapped[index]] = [body[index]!, body[index - 1]!];
      yield { type: "BlockStatement", body: swapped, directives: [] };
    }
  },
};

/** Does not wait for a call whose value nothing uses. */
const awaitRemoval: Mutator = {
  name: "AwaitRemoval",
  *mutate({ node, parent }) {
    if (node.type !== "AwaitExpression" || parent?.type !== "ExpressionStatement") return;
    if (node.argument.type === "CallExpression") yield node.argument;
  },
};

/** Replaces what a `using` declaration holds without naming it, such as a lock, by something that holds nothing. */
const lockRemoval: Mutator = {
  name: "LockRemoval",
  *mutate({ node, parent, parentPath }) {
    if (parent?.type !== "VariableDeclarator" || parent.init !== node || !/^_/.test(parent.id.name ?? "")) return;
    if (!/using/.test(parentPath?.parent?.kind ?? "")) return;
    yield { type: "NullLiteral" };
  },
};

/** Raises and lowers the numbers of constants that bound something by one. */
const bound: Mutator = {
  name: "Bound",
  *mutate({ node, parent }) {
    if (node.type !== "NumericLiteral" || parent?.type !== "VariableDeclarator") return;
    if (!BOUNDS.test(parent.id.name ?? "")) return;
    for (const value of [node.value + 1, node.value - 1]) yield { type: "NumericLiteral", value };
  },
};

/** Makes a plain condition of `a ? b : c` constant. Stryker does so where the condition compares or combines. */
const ternaryCondition: Mutator = {
  name: "TernaryCondition",
  *mutate({ node, parent }) {
    if (parent?.type !== "ConditionalExpression" || parent.test !== node) return;
    if (/^(Binary|Logical)Expression$/.test(node.type)) return;
    for (const value of [true, false]) yield { type: "BooleanLiteral", value };
  },
};

/** Removes a property that guards a request or an operation. */
const propertyRemoval: Mutator = {
  name: "PropertyRemoval",
  *mutate({ node }) {
    if (node.type !== "ObjectExpression" || node.properties.length < 2) return;
    for (const property of node.properties) {
      if (!GUARDING.test(property.key?.name ?? property.key?.value ?? "") || isReadingMark(property)) continue;
      yield { type: "ObjectExpression", properties: (node.properties as Node[]).filter((other) => other !== property) };
    }
  },
};

/** Reports whether a property marks a command as one that only reads: without it, the command counts as such, too. */
function isReadingMark({ key, value }: Node): boolean {
  return key?.name === "mutates" && value?.type === "BooleanLiteral" && value.value === false;
}

/** Removes what wakes a controller: one call of a chain, or the only one. */
const watchRemoval: Mutator = {
  name: "WatchRemoval",
  *mutate({ node }) {
    const { callee } = node;
    if (node.type !== "CallExpression" || callee.type !== "MemberExpression") return;
    if (/^(watch|subscribe)$/.test(callee.property.name ?? "")) yield callee.object;
  },
};

/** Removes each element of a constant list, such as the kinds of failures after which something is tried again. */
const elementRemoval: Mutator = {
  name: "ElementRemoval",
  *mutate({ node, parent }) {
    if (node.type !== "ArrayExpression" || parent?.type !== "VariableDeclarator") return;
    if (!/^[A-Z][A-Z_]+$/.test(parent.id.name ?? "") || node.elements.length < 2) return;
    const elements: Node[] = node.elements;
    if (!elements.every((element) => /^(Identifier|StringLiteral)$/.test(element?.type))) return;
    for (const element of elements) yield { ...node, elements: elements.filter((other) => other !== element) };
  },
};

/** Removes an operand of a condition that Stryker leaves alone: a call, a name or its negation. */
const operandRemoval: Mutator = {
  name: "OperandRemoval",
  *mutate({ node }) {
    if (node.type !== "LogicalExpression" || node.operator === "??") return;
    const { left, right } = node;
    if (isPlainCondition(right)) yield left;
    if (isPlainCondition(left)) yield right;
  },
};

function isPlainCondition({ type, argument, operator }: Node): boolean {
  if (type === "UnaryExpression" && operator === "!") return isPlainCondition(argument);
  return /^(Call|Await|Member|OptionalMember|OptionalCall)Expression$|^Identifier$/.test(type);
}

const OWN: readonly Mutator[] = [
  ...[statementRemoval, statementOrder, awaitRemoval, lockRemoval],
  ...[bound, ternaryCondition, propertyRemoval],
  ...[watchRemoval, elementRemoval, operandRemoval],
];

/** Returns the mutators to use. @param strykers the mutators of the instrumenter */
export function chooseMutators(strykers: readonly Mutator[]): Mutator[] {
  const chosen = strykers.filter(({ name }) => !LEFT_OUT.includes(name)).map((mutator): Mutator => {
    if (mutator.name === "EqualityOperator") return { ...mutator, mutate: boundaries };
    const isSelected = SELECTED[mutator.name];
    if (isSelected === undefined) return mutator;
    return { ...mutator, mutate: (path, context) => isSelected(path) ? mutator.mutate(path, context) : [] };
  });
  return [...chosen, ...OWN];
}

function* boundaries({ node }: Path): Generator<Node> {
  const operator = node.type === "BinaryExpression" ? BOUNDARY[node.operator] : undefined;
  if (operator !== undefined) yield { type: "BinaryExpression", operator, left: node.left, right: node.right };
}

/** Leaves out log messages, and what errors say. The instrumenter calls it for each node. */
export const ignorer = {
  shouldIgnore({ node }: Path): string | undefined {
    if (node.type === "CallExpression" && isLogCall(node.callee)) return "a log message";
    if (node.type === "NewExpression" && /Error$/.test(node.callee.name ?? "")) return "an error's message";
  },
};

/** Reports whether both statements do something, one of them awaits, and neither declares a name that the other uses. */
function areInAnyOrder(first: Node, second: Node): boolean {
  const both = [first, second];
  if (!both.every(acts) || !both.some(awaits)) return false;
  return ![[first, second], [second, first]].some(([a, b]) => declaredNames(a!).some((name) => uses(b!, name)));
}

function awaits({ type, expression, declarations }: Node): boolean {
  const values: (Node | null)[] = type === "ExpressionStatement"
    ? [expression, expression.right ?? null]
    : (declarations as Node[]).map(({ init }) => init);
  return values.some((value) => value?.type === "AwaitExpression");
}

function acts({ type, expression, kind, declarations }: Node): boolean {
  if (type === "VariableDeclaration") return /^(const|let)$/.test(kind) && awaits({ type, declarations });
  if (type !== "ExpressionStatement") return false;
  if (expression.type === "CallExpression") return !isLogCall(expression.callee);
  return /^(Await|Assignment)Expression$/.test(expression.type);
}

function declaredNames({ type, declarations }: Node): string[] {
  const names = (id: Node): string[] => {
    if (id.type === "Identifier") return [id.name];
    if (id.type === "ObjectPattern") {
      return (id.properties as Node[]).flatMap((one) => names(one.value ?? one.argument));
    }
    if (id.type === "ArrayPattern") return (id.elements as (Node | null)[]).flatMap((one) => one ? names(one) : []);
    return names(id.left ?? id.argument); // a default, or the rest
  };
  return type === "VariableDeclaration" ? (declarations as Node[]).flatMap(({ id }) => names(id)) : [];
}

/** Reports whether a name occurs below a node. */
function uses(node: Node, name: string): boolean {
  if (node.type === "Identifier" && node.name === name) return true;
  const below = Object.entries(node).filter(([key]) => key !== "loc").flatMap(([, value]) => value);
  return below.some((child) => typeof child?.type === "string" && uses(child, name));
}

function isLogCall(callee: Node): boolean {
  if (callee.type !== "MemberExpression" || !/^(debug|info|warn|error)$/.test(callee.property.name ?? "")) return false;
  const { object } = callee;
  return /^#?(log|logger)$/i.test(object.name ?? object.property?.name ?? object.property?.id?.name ?? "") ||
    object.callee?.name === "getLogger";
}

/** Reports whether a text is an option or argument of a command, a tag, a finalizer, a media type or the like. */
function isMeaningfulText({ node, parent }: Path): boolean {
  const text: string | undefined = node.type === "StringLiteral" ? node.value : node.quasis?.[0]?.value.raw;
  if (text === undefined) return false;
  if (parent?.type === "ArrayExpression" && hasOption(parent)) return true;
  if (OPTION.test(text) || (node.type === "StringLiteral" && QUALIFIED.test(text))) return true;
  return parent?.type === "VariableDeclarator" && RECORDED.test(parent.id.name ?? "");
}

/** Whether arrays have options. It is decided at their first text: later ones are visited when it is instrumented. */
const arraysWithOptions = new WeakMap<Node, boolean>();

function hasOption(array: Node): boolean {
  const known = arraysWithOptions.get(array);
  if (known !== undefined) return known;
  const elements: (Node | null)[] = array.elements;
  const has = elements.some((element) => OPTION.test(element?.value ?? element?.quasis?.[0]?.value.raw ?? ""));
  arraysWithOptions.set(array, has);
  return has;
}

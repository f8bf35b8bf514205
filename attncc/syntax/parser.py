"""Source text to AST. Errors are collected, so that one run reports every mistake of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache
from itertools import product
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.grammar import Rule
from lark.parsers.lalr_parser_state import ParserState

from ..diagnostics import AttnccError, Diagnostics
from ..source import SourceFile, Span
from . import ast
from .builder import build
from .grammar import grammar
from .tokens import END, MAX_NESTING, first_on_line, span, tokenize, too_deep
from .trouble import BRACKETS, ITEMS, STATEMENTS, Trouble

MAX_ERRORS = 20  # of one file; more of them help nobody
MAX_STACK = 50 * MAX_NESTING  # of the automaton


def parse(source: SourceFile) -> ast.Module:
    """The syntax tree of a file; AttnccError with all of its syntax errors, top to bottom."""
    diagnostics = Diagnostics()
    tree = _Automaton(source, tokenize(source, diagnostics), diagnostics).run()
    if diagnostics.items:
        found = sorted(diagnostics.items, key=lambda item: item.span.start if item.span else 0)
        raise AttnccError(found[:MAX_ERRORS])
    assert tree is not None
    _check_depth(tree, source)
    return build(tree, source)


@lru_cache(maxsize=64)
def parsed(source: SourceFile) -> ast.Module:
    """The same, kept: most files import the same library, and a spec is loaded once for each of its builds."""
    return parse(source)


Children = list[Any]  # trees and tokens


class _Callbacks(dict[Any, Callable[[Children], Any]]):
    """What makes a tree of a rule's children, found by the rule's identity: rules of an automaton that was loaded are
    equal to the keys, but not the same, and lark would compare all of their symbols. Most rules of an expression only
    hand on the one below: lark would look where that begins and ends, each time."""

    def __init__(self, items: Mapping[Any, Callable[[Children], Any]]) -> None:
        super().__init__(items)
        self._found: dict[int, Callable[[Children], Any]] = {}  # by the identity of rules, which the automaton keeps

    def __getitem__(self, rule: Rule) -> Callable[[Children], Any]:
        found = self._found.get(id(rule))
        if found is None:
            found = self._found[id(rule)] = _only if _hands_on(rule) else super().__getitem__(rule)
        return found


def _hands_on(rule: Rule) -> bool:
    """Whether the tree of a rule is that of its only child, as in `?sum: product`."""
    if len(rule.expansion) != 1 or rule.alias or not rule.options.expand1:
        return False
    (child,) = rule.expansion
    return not child.name.startswith("_") and not getattr(child, "filter_out", False)


def _only(children: Children) -> Any:
    return children[0]


@lru_cache(maxsize=1)
def _callbacks(automaton: Lark) -> _Callbacks:
    return _Callbacks(automaton.parse_interactive("").parser_state.parse_conf.callbacks)


# These go on meaning themselves, whatever a line calls so.
_JOIN_EXPRESSIONS = ("NAME", "AND", "OR", "NOT", "IF", "ELSE", "FOR", "IN")


class _Automaton:
    """One run of lark's LALR automaton over the tokens of a file, which goes on after errors.

    After an error, first a reading of the token is sought with which the two tokens behind it fit, or at least one; the
    rule that explains the mistake proposes readings. Else everything up to the next statement, item or `}` is skipped,
    and what was begun there is given up (panic mode).
    """

    def __init__(self, source: SourceFile, tokens: list[Token], diagnostics: Diagnostics) -> None:
        self.source = source
        self.tokens = tokens
        self.diagnostics = diagnostics
        automaton = grammar()
        self.parser = automaton.parse_interactive("")
        self.state = self.parser.parser_state
        self.state.parse_conf.callbacks = _callbacks(automaton)
        self.silent = copy(self.state.parse_conf)
        self.silent.callbacks = {}

    def run(self) -> Tree[Token] | None:
        """The parse tree. It means nothing if there were errors."""
        tree, index = None, 0
        while index < len(self.tokens) and len(self.diagnostics.items) < MAX_ERRORS:
            self._check_stack(index)
            if self._assignment_inside_expression(index) or self._assignment_behind_input(index):
                index = self._recover(index)
                continue
            try:
                tree = self.parser.feed_token(self.tokens[index])
                index += 1
            except UnexpectedToken:
                index = self._recover(index)
        return tree

    def _check_stack(self, index: int) -> None:
        """Prefix operators and `else` nest without brackets; this bounds what an error costs."""
        if len(self.state.state_stack) > MAX_STACK:
            raise AttnccError(too_deep(span(self.source, self.tokens[index])))

    def _assignment_inside_expression(self, index: int) -> bool:
        """`score = …` begins a statement, but what stands before it isn't complete (so `score` alone would fit)."""
        starts = self.tokens[index].type == "SCORE" and self.tokens[index + 1].type == "EQUAL"
        return starts and not self._accepts(self.state.state_stack, "SCORE", "EQUAL")

    def _assignment_behind_input(self, index: int) -> bool:
        """A name that begins a line below an `input` would be a property of that; what stands behind it tells that it
        is none, as in `q = …`."""
        token, states = self.tokens[index], self.state.state_stack
        if token.type != "NAME" or not first_on_line(self.source, token) or not self._accepts(states, "LET"):
            return False
        return self._accepts(states, "NAME") and not self._accepts(states, "NAME", self.tokens[index + 1].type)

    # ---------------------------------------------------------------- after an error

    def _recover(self, index: int) -> int:
        """Reports the token that does not fit; returns the index to go on at."""
        from .mistakes import explain  # files without mistakes need none of it

        token = self.tokens[index]
        mistake = explain(Trouble(self.source, self.tokens, index, self._expected(), self._opened()))
        self.diagnostics.add(mistake.diagnostic)
        if mistake.diagnostic.code == "A004" and token.type not in _JOIN_EXPRESSIONS:
            self._mean_names(token, index)
        following = [item.type for item in self.tokens[index + 1 : index + 3]]
        for ahead, reading in product((following, following[:1]), mistake.readings):
            if self._accepts(self.state.state_stack, *reading, *ahead):
                for terminal in reading:
                    self.parser.feed_token(Token.new_borrow_pos(terminal, "", token))
                return index + 1
        return self._resume(index)

    def _mean_names(self, keyword: Token, index: int) -> None:
        """Where a keyword was given as a name, its uses further below stand for that name: they are no mistakes."""
        for place in range(index + 1, len(self.tokens) - 1):
            token = self.tokens[place]
            called = self.tokens[place + 1].type == "LPAR"
            if token.type == keyword.type and not called and not first_on_line(self.source, token):
                self.tokens[place] = Token.new_borrow_pos("NAME", str(token), token)

    def _resume(self, index: int) -> int:
        """Panic mode: gives up what was begun until the next statement, item or `}` fits."""
        for place in range(index, len(self.tokens)):
            probe = self._probe(place)
            depth = self._depth_where(probe, self.tokens[place].type) if probe else 0
            if depth:
                del self.state.state_stack[depth:], self.state.value_stack[depth - 1 :]
                return place
        return len(self.tokens)

    def _probe(self, index: int) -> str | None:
        """The terminal that tells whether the token at `index` may go on there, None if it is no place to go on.

        For a statement that is `let`, which only fits where a statement begins; `score` and `scale` fit elsewhere too.
        """
        token = self.tokens[index]
        if token.type == "SCORE" and self.tokens[index + 1].type != "EQUAL":
            return None
        if token.type == "SCALE" and not first_on_line(self.source, token):
            return None
        if token.type in STATEMENTS:
            return "LET"
        return token.type if token.type in (*ITEMS, "RBRACE", END) else None

    def _depth_where(self, *alternatives: str) -> int:
        """The greatest depth of the stack at which each of the terminals would fit; 0 if there is none."""
        states = self.state.state_stack
        lowest = self._after_last_body() if alternatives[0] in ("LET", "RBRACE") else 0
        for depth in range(len(states), lowest, -1):
            if all(self._accepts(states[:depth], terminal) for terminal in alternatives):
                return depth
        return 0

    def _after_last_body(self) -> int:
        """The depth below which a body is complete, though the automaton waits for a token to say so."""
        kinds = [item.type if isinstance(item, Token) else "" for item in self.state.value_stack]
        return len(kinds) - kinds[::-1].index("RBRACE") if "RBRACE" in kinds else 0

    def _accepts(self, states: list[int], *terminals: str) -> bool:
        """Whether the terminals, one after the other, fit behind these states."""
        if terminals and terminals[0] not in self.silent.states[states[-1]]:
            return False
        trial = ParserState(self.silent, self.state.lexer, list(states), [])
        try:
            for terminal in terminals:
                trial.feed_token(Token(terminal, ""), terminal == END)
        except UnexpectedToken:
            return False
        return True

    def _expected(self) -> frozenset[str]:
        states = self.state.state_stack
        choices = (name for name in self.silent.states[states[-1]] if name.isupper())
        return frozenset(name for name in choices if self._accepts(states, name))

    def _opened(self) -> tuple[Token, ...]:
        opened: list[Token] = []
        for item in self.state.value_stack:
            if isinstance(item, Token) and item.type in BRACKETS:
                opened.append(item)
            elif isinstance(item, Token) and item.type in BRACKETS.values():
                opened.pop()
        return tuple(opened)


def _check_depth(tree: Tree[Token], source: SourceFile) -> None:
    """Bounds the depth of the AST, so that later phases may walk it by recursion."""
    depths: dict[int, int] = {}
    for node in tree.iter_subtrees():
        below = max(
            (depths[id(child)] - _continues(node, child) for child in node.children if isinstance(child, Tree)),
            default=0,
        )
        depths[id(node)] = below + 1
        if below >= MAX_NESTING:
            chain = "each operator of a chain is a level: `a + b + c` has two; a chain of `and`, or of `or`, is one"
            raise AttnccError(too_deep(Span(source, node.meta.start_pos, node.meta.end_pos), notes=(chain,)))


def _continues(node: Tree[Token], child: Tree[Token]) -> bool:
    """Whether a child is the beginning of its node's chain of `and` or of `or`, which is one level."""
    return node.children[0] is child and _join(node) is not None and _join(node) == _join(child)


def _join(node: Tree[Token]) -> str | None:
    """The operator of a node of the rule `binary` that is `and` or `or`."""
    operator = str(node.children[1]) if node.data == "binary" else ""
    return operator if operator in ast.JOINS else None

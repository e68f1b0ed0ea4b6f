"""Names in C: functions of math.h that texts may call, and words that are no names."""

MATH_H = frozenset(
    name + suffix
    for name in (
        "sqrt", "fabs", "floor", "ceil", "trunc", "round", "nearbyint", "exp", "exp2", "log", "log2", "log10", "pow",
        "sin", "cos", "tan", "tanh", "erf", "fma",
    )
    for suffix in ("", "f")
)  # fmt: skip
RESERVED = frozenset((
    "auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "false", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "true", "typedef", "union", "unsigned", "void", "volatile", "while",
))  # fmt: skip
"""Names that are no names in C99 with stdbool.h."""

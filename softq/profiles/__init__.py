"""What device families take of a softmax, and of the attention around it, by their own documents: one file each.

A profile is a TOML file in this folder, or one of the user's own that is named by its path. It holds rules, each with
the document that states it; nothing in it was tried on a device:

    name = "my-npu"                       # the file's name
    summary = "One line that says what it is"
    release = "Compiler 4.2, May 2026"    # the release that the rules were read from, or a document's version or date
    methods = ["my-method"]               # methods of softq that compute what its kernels do, if there are any

    [sources.manual]                      # the documents that the rules are from
    title = "Operator manual"
    url = "https://example.com/operators"
    version = "2.1"                       # what was read of it: a version, a commit, a date of publication
    read = 2026-11-24                     # when it was read

    [[softmax]]                           # a rule for each softmax; [[attention]] for one whose weights meet values
    rule = "rank"                         # what it is about: the names and options of rules are in checks.py
    most = 4
    says = "At most 4 axes."              # in words of one's own
    source = "manual"

    [not_stated]                          # what the documents do not say; every subject has a rule, or stands here
    softmax = ["axis", "dtype", "length", "operator", "output"]
    attention = ["between", "head-size", "length", "pattern", "products"]

A key that no rule has, a rule without a source, a source without a rule, and a subject that is neither ruled nor named
as not stated are errors that name the file.
"""

from softq.profiles.judging import Judgement, Ruling, Taken, judge
from softq.profiles.loading import load_profile, profile_names
from softq.profiles.meeting import ProfileConversion, convert_for
from softq.profiles.schema import Profile, Rule, Source

__all__ = [
    "Judgement",
    "Profile",
    "ProfileConversion",
    "Rule",
    "Ruling",
    "Source",
    "Taken",
    "convert_for",
    "judge",
    "load_profile",
    "profile_names",
]

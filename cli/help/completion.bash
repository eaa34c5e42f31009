# bash completion of @PROGRAM@
# bash splits words at "=" and ":" too (COMP_WORDBREAKS), and replaces the last part alone. So the parts are put together before
# the program sees them, and what stands before the last part is cut off from what it proposes. Nothing that it proposes is
# expanded, as compgen -W would do.
_@NAME@() {
  local part word strip line words=() lines=() glue=""
  for part in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    if [[ ${#words[@]} -gt 0 && ( $part =~ ^[=:]+$ || -n $glue ) ]]; then
      words[${#words[@]}-1]+=$part
    else
      words+=("$part")
    fi
    if [[ $part =~ ^[=:]+$ ]]; then glue=1; else glue=""; fi
  done
  part=${COMP_WORDS[COMP_CWORD]}
  [[ $part =~ ^[=:]+$ ]] && part=""
  word=${words[${#words[@]}-1]}
  [[ $word == -*=* ]] && word=${word#*=}
  strip=${word%"$part"}
  while IFS= read -r line; do
    lines+=("$line")
  done < <(command "${COMP_WORDS[0]/#\~/$HOME}" @COMPLETE@ "${words[@]}" 2>/dev/null)
  COMPREPLY=()
  for line in "${lines[@]}"; do
    case $line in
    :0) compopt -o default ;;
    :16) compopt -o dirnames -o filenames ;;
    :*) ;;
    *)
      line=${line%%$'\t'*}
      printf -v line %q "${line#"$strip"}"
      COMPREPLY+=("$line")
      ;;
    esac
  done
}
complete -F _@NAME@ @PROGRAM@

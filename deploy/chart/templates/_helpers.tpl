{{- /*
Labels of every object. A version of SemVer may have a "+", and a label may not. Plain manifests have no manager: Helm refuses
definitions with another one than itself, and people apply definitions by hand before an upgrade.
*/ -}}
{{- define "denolith.labels" -}}
app.kubernetes.io/name: denolith
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
{{- with .Release.Service }}
app.kubernetes.io/managed-by: {{ . }}
{{- end }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Annotations of the definitions: the version of their schemas, which is SCHEMA_VERSION of k8s/client/definitions.ts. */ -}}
{{- define "denolith.definitionAnnotations" -}}
lvm.denolith.dev/schema-version: "1"
helm.sh/resource-policy: keep
{{- with .Values.crds.annotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Their names. */ -}}
{{- define "denolith.definitionNames" -}}
- lvmimports.lvm.denolith.dev
- lvmmoves.lvm.denolith.dev
- lvmnodes.lvm.denolith.dev
- lvmsnapshots.lvm.denolith.dev
- lvmvolumes.lvm.denolith.dev
{{- end }}

{{- /* The rule of a role by which a process reads them. */ -}}
{{- define "denolith.definitionRule" -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    {{- include "denolith.definitionNames" . | nindent 4 }}
  verbs: [get]
{{- end }}

{{- /* Name of the image, with its registry, tag and digest. */ -}}
{{- define "denolith.image" -}}
{{- with .Values.global.imageRegistry }}{{ . }}/{{ end }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

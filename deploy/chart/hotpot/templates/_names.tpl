{{/* What several templates say alike. Names are fixed: there is one hotpot in a cluster. */}}

{{- define "hotpot.labels" -}}
app.kubernetes.io/name: hotpot
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "hotpot.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hotpot.driver" -}}
gpu.hotpot.dev
{{- end }}

{{/* A service account as the API server calls it; takes the root and the component. */}}
{{- define "hotpot.user" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:hotpot-{{ index . 1 }}
{{- end }}

{{/* Where a component's pods may run; takes the component's values. */}}
{{- define "hotpot.placed" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A pod that needs nothing of its node. */}}
{{- define "hotpot.confined.pod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "hotpot.confined.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Replicas on nodes of their own, where there are such; takes the component. */}}
{{- define "hotpot.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app.kubernetes.io/name: hotpot, app.kubernetes.io/component: {{ . }}}}
{{- end }}
